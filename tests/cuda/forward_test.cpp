// A forward pass: every row within its bound, in every layout of a batch.
#include "rotary_cases.hpp"
#include "update_cases.hpp"

using namespace sympow::test;

#define SYMPOW_SMALL (Kernels<bf16, 2, 16>), (Kernels<fp16, 2, 16>)

TEMPLATE_TEST_CASE("sums of chunks are right", "[cuda]", SYMPOW_SMALL) { check_update<TestType>(70); }
TEMPLATE_TEST_CASE("rows are right in every layout of a batch", "[cuda]", SYMPOW_SMALL) {
  check_layouts<TestType>(129);
}
TEMPLATE_TEST_CASE("rows are right for all gates", "[cuda]", SYMPOW_SMALL) { check_gates<TestType>(130); }
TEMPLATE_TEST_CASE("rows are right for all norms and scales", "[cuda]", SYMPOW_SMALL) { check_norms<TestType>(100); }
TEMPLATE_TEST_CASE("rows that see only zeros are zero", "[cuda]", SYMPOW_SMALL) { check_zeros<TestType>(80); }
TEMPLATE_TEST_CASE("two runs joined are one", "[cuda]", SYMPOW_SMALL) { check_joined<TestType>({150, 129, 40}, 70); }
TEMPLATE_TEST_CASE("rows of rotary are right, whatever their angles", "[cuda]", SYMPOW_SMALL) {
  check_rotary<TestType>({70, 0, 5});
  check_lost_angles<TestType>(80, 66);
}
TEMPLATE_TEST_CASE("what is not a number shows where it is seen", "[cuda]", SYMPOW_SMALL) {
  check_not_a_number<TestType>(140);
}
TEST_CASE("what a reset hides is not read", "[cuda]") {
  check_hidden<Kernels<bf16, 2, 16>>();
  check_hidden<Kernels<bf16, 1, 64>>();
}
TEMPLATE_TEST_CASE("rows are the same in any order of warps", "[cuda]", SYMPOW_SMALL) {
  Case how = case_of<TestType>({130});
  how.log_gate = [](int t) { return t % 40 == 7 ? -1. : -.01; };
  check_orders<TestType>(how);
}
TEMPLATE_TEST_CASE("rows of 64 channels are right", "[cuda]", (Kernels<bf16, 2, 64>), (Kernels<fp16, 2, 64>)) {
  Case how = case_of<TestType>({70});
  how.log_gate = [](int t) { return t % 40 == 7 ? -1. : -.01; };
  check<TestType>(how);
  how.rotary = Rotation{fraction_bits<typename TestType::T> == 7, {}, 0};
  check<TestType>(how);
}
