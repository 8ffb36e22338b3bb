// Gradients of rotary in few cases, quick to compile.
#include "rotary_backward.hpp"

using namespace sympow::test;

TEST_CASE("gradients of rotary", "[cuda]") {
  using Kernel = Kernels<bf16, 2, 16>;
  for (const auto& cuts : {std::vector<int>{}, {0, 1 << 30}}) {
    Case how = case_of<Kernel>({270, 70});
    how.e = 16;
    how.chunk = 128;
    how.heads = cuts.empty() ? Heads{4, 2, 1} : Heads{4, 4, 2};
    how.log_gate = [](int t) { return t == 150 ? -infinity : t % 40 == 7 ? -1. : -.01; };
    how.rotary = Rotation{!cuts.empty(), small_step, 0};
    check_aligned<Kernel>(how, cuts);
    how.rotary->halves = cuts.empty();
    how.rotary->beta = {};
    how.heads = {2, 2, 1};
    check_turned<Kernel>(how, cuts);
  }
}
TEST_CASE("what a turn of all tokens changes", "[cuda]") { check_gauge<Kernels<bf16, 2, 16>>(); }
TEST_CASE("gradients of rotary in several calls", "[cuda]") { check_rotary_calls<Kernels<bf16, 2, 16>>(); }
TEMPLATE_TEST_CASE("gradients of rotary of another power", "[cuda]", (Kernels<bf16, 3, 16>), (Kernels<bf16, 1, 64>)) {
  Case how = case_of<TestType>({330});
  how.e = 8;
  how.chunk = 128;
  how.rotary = Rotation{true, small_step, 0};
  check_aligned<TestType>(how, {0, 1 << 30});
}
