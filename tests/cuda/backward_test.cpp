// A backward pass: every gradient within its bound, in every layout of a batch.
#include "backward_cases.hpp"

using namespace sympow::test;

#define SYMPOW_SMALL (Kernels<bf16, 2, 16>), (Kernels<fp16, 2, 16>)

TEMPLATE_TEST_CASE("gradients are right in every layout of a batch", "[cuda]", SYMPOW_SMALL) {
  check_backward_layouts<TestType>(80);
}
TEST_CASE("gradients are right for all gates", "[cuda]") { check_backward_gates<Kernels<bf16, 2, 16>>(130); }
TEMPLATE_TEST_CASE("gradients are right for all norms and scales", "[cuda]", SYMPOW_SMALL) {
  check_backward_norms<TestType>(66);
}
TEST_CASE("gradients of zeros are right", "[cuda]") {
  check_backward_zeros<Kernels<bf16, 2, 16>>(70);
  check_backward_zeros<Kernels<fp16, 1, 64>>(70);
}
TEST_CASE("rows whose gradient is zero have no weight", "[cuda]") {
  check_backward_large_rows_of_zeros<Kernels<bf16, 2, 16>>(70);
}
TEST_CASE("peaks are the largest exponents of the rows that see a key", "[cuda]") { check_peaks(); }
TEST_CASE("what is not a number shows in the gradients that it is part of", "[cuda]") {
  check_backward_not_a_number<Kernels<bf16, 2, 16>>(140);
  check_backward_not_a_number<Kernels<fp16, 1, 64>>(140);
}
TEST_CASE("gradients are the same in any order of warps", "[cuda]") {
  Case how = case_of<Kernels<bf16, 2, 16>>({130});
  how.log_gate = [](int t) { return t % 40 == 7 ? -1. : -.01; };
  check_backward_orders<Kernels<bf16, 2, 16>>(how);
}
TEST_CASE("gradients meet no bank twice, and multiply each pair of tiles once", "[cuda]") {
  using Kernel = Kernels<bf16, 2, 64>;
  Case how = case_of<Kernel>({128});
  how.chunk = 128;
  how.has_factors = true;
  how.log_gate = [](int) { return -.01; };
  ArraysOf<Kernel> x(how);
  GradientBuffers<Kernel::T, Kernel::d> gradients(x, 0);
  Backward<Kernel::T, Kernel::P, Kernel::d> backward(x, gradients);
  REQUIRE(backward.forward.run_quadratic({}).clean());
  REQUIRE(backward.units({}).clean());
  const long tiles = 3, products = 4 * (64 / 16) * (64 / 8);  // pairs of 64 tokens; a warp has 16 rows
  const host::Report queries = backward.queries({}), keys = backward.keys({});
  REQUIRE(queries.executed("mma") == tiles * 3 * products);
  REQUIRE(keys.executed("mma") == tiles * 4 * products);
  for (const host::Report& report : {queries, keys})
    for (const auto& [place, site] : report.sites) {
      CAPTURE(place.text(), site.instruction);
      REQUIRE(site.shared.transactions == site.shared.ideal);
    }
}
