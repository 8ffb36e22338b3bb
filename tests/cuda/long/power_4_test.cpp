// A forward pass of power 4, for all numbers of channels that kernels are made for.
#include "rotary_cases.hpp"
#include "update_cases.hpp"

using namespace sympow::test;

TEMPLATE_TEST_CASE("rows of power 4 are right", "[cuda]", (Kernels<bf16, 4, 16>), (Kernels<fp16, 4, 16>),
                   (Kernels<float, 4, 16>)) {
  check_some<TestType>();
  SECTION("rotary") { check_rotary<TestType>({66}); }
  SECTION("sums of chunks") { check_update<TestType>(40); }
  SECTION("gates") { check_gates<TestType>(67); }
  SECTION("sizes") { check_norms<TestType>(67); }
  SECTION("zeros") { check_zeros<TestType>(70); }
}
TEMPLATE_TEST_CASE("rows of power 4 with many channels are right", "[cuda]", (Kernels<bf16, 4, 32>),
                   (Kernels<fp16, 4, 32>)) {
  check_some<TestType>();
}
TEMPLATE_TEST_CASE("rows of power 4 and split states are right", "[cuda]", (Kernels<bf16, 4, 16>),
                   (Kernels<fp16, 4, 32>)) {
  check_joined<TestType>({80}, 64, {}, true);
}
