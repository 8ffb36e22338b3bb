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
TEST_CASE("what is not a number shows in the gradients that it is part of", "[cuda]") {
  check_backward_not_a_number<Kernels<bf16, 2, 16>>(140);
}
TEST_CASE("gradients are the same in any order of warps", "[cuda]") {
  Case how = case_of<Kernels<bf16, 2, 16>>({130});
  how.log_gate = [](int t) { return t % 40 == 7 ? -1. : -.01; };
  check_backward_orders<Kernels<bf16, 2, 16>>(how);
}
