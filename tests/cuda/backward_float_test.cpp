// A backward pass of floats: gradients within what floats lose.
#include "backward_cases.hpp"
#include "rotary_backward.hpp"

using namespace sympow::test;

namespace {

using Small = Kernels<float, 2, 16>;
double gate(int t) { return t == 50 ? -infinity : t % 40 == 7 ? -1. : -.01; }

}  // namespace

TEST_CASE("gradients of floats are right in packed batches and groups of heads", "[cuda]") {
  Case how = case_of<Small>({67, 0, 65, 1});
  how.packed = true;
  how.e = 72;
  how.heads = {2, 2, 1};
  how.log_gate = gate;
  check_backward<Small>(how);
}
TEST_CASE("gradients of floats are right for all norms and scales", "[cuda]") { check_backward_norms<Small>(66); }
TEST_CASE("gradients of floats in several calls are right", "[cuda]") {
  Case how = case_of<Small>({140, 70, 0});
  how.e = 40;
  how.heads = {2, 2, 1};
  how.log_gate = [](int t) { return t % 40 == 7 ? -1. : -.01; };
  check_chunked<Small>(how, {0, 30, 94, 95, 1 << 30});
}
TEST_CASE("gradients of floats that turn are right", "[cuda]") {
  Case how = case_of<Small>({140});
  how.e = 8;
  for (const bool halves : {false, true}) {
    how.rotary = Rotation{halves, small_step, 0};
    check_aligned<Small>(how, {0, 70, 1 << 30});
  }
}
TEST_CASE("gradients of exact and of fast products of floats are right, and not the same", "[cuda]") {
  using Kernel = Kernels<float, 1, 64>;
  std::string first;
  for (const Products products : {Products::exact, Products::fast}) {
    Case how = case_of<Kernel>({100});
    how.e = 16;
    how.products = products;
    how.log_gate = gate;
    check_backward<Kernel>(how);
    how.rotary = Rotation{false, small_step, 0};
    how.has_factors = true;
    ArraysOf<Kernel> x(how);
    GradientBuffers<float, 64> gradients(x, 0);
    REQUIRE(run_calls<Kernel>(x, gradients, {0, 1 << 30}).clean());
    const std::string all = bits(gradients.d_queries.data, gradients.d_keys.data, gradients.d_values.data);
    REQUIRE(all != first);
    first = all;
  }
}
