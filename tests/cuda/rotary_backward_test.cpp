// Gradients of rows that turn, of β and of rates: by the gradient row rule and by their roundings.
#include "rotary_backward.hpp"

using namespace sympow::test;

TEST_CASE("gradients of rotary are right in every layout of a batch", "[cuda]") {
  check_rotary_layouts<Kernels<bf16, 2, 16>>();
}
TEST_CASE("gradients of rotary in several calls are those of one", "[cuda]") {
  check_rotary_calls<Kernels<bf16, 2, 16>>();
}
TEMPLATE_TEST_CASE("gradients of rotary are right for other powers", "[cuda]", (Kernels<fp16, 1, 64>),
                   (Kernels<bf16, 1, 128>), (Kernels<bf16, 3, 16>)) {
  Case how = case_of<TestType>({150});
  how.e = 16;
  how.rotary = Rotation{true, small_step, 0};
  check_aligned<TestType>(how, {});
  check_aligned<TestType>(how, {0, 70, 1 << 30});
}
TEST_CASE("gradients of rotary are right for all norms and steps", "[cuda]") {
  using Kernel = Kernels<fp16, 2, 16>;
  Case how = case_of<Kernel>({150});
  how.e = 16;
  how.key_decades = how.query_decades = .5;
  for (const double step : {0., -1e-3, 3e4}) {
    how.rotary = Rotation{false, [=](int t) { return t % 3 == 0 ? step : step / 2; }, 0};
    for (const auto& cuts : {std::vector<int>{}, {0, 1 << 30}}) check_turned<Kernel>(how, cuts);
  }
}
TEST_CASE("gradients of rotary are the same in any order of warps", "[cuda]") {
  using Kernel = Kernels<bf16, 2, 16>;
  Case how = case_of<Kernel>({150});
  how.e = 16;
  how.has_factors = true;
  how.rotary = Rotation{false, small_step, 0};
  for (const auto& cuts : {std::vector<int>{}, {0, 70, 1 << 30}}) {
    how.chunk = cuts.empty() ? 192 : 64;
    std::string first;
    for (const auto schedule : {host::Schedule::forward, host::Schedule::reverse, host::Schedule::random}) {
      ArraysOf<Kernel> x(how);
      GradientBuffers<bf16, 16> gradients(x, 0);
      const host::Report report = run_calls<Kernel>(x, gradients, cuts, {schedule, 5, host::MmaSum::hopper, {}});
      INFO(report.text());
      REQUIRE(report.clean());
      std::string all = bits(gradients.d_queries.data, gradients.d_keys.data, gradients.d_beta.data);
      all.append(reinterpret_cast<const char*>(gradients.d_rates.data()), 8 * gradients.d_rates.size());
      if (first.empty()) first = all;
      REQUIRE(all == first);
    }
  }
}
TEST_CASE("what a turn of all tokens changes comes back to every one of them", "[cuda]") {
  check_gauge<Kernels<bf16, 2, 16>>();
}
