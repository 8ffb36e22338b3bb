// A forward pass of power 3, for all numbers of channels that kernels are made for.
#include "rotary_cases.hpp"
#include "update_cases.hpp"

using namespace sympow::test;

TEMPLATE_TEST_CASE("rows of power 3 are right", "[cuda]", (Kernels<bf16, 3, 16>), (Kernels<fp16, 3, 16>),
                   (Kernels<float, 3, 16>)) {
  check_all<TestType>();
  SECTION("rotary") { check_rotary<TestType>({70, 0, 5}); }
  SECTION("sums of chunks") { check_update<TestType>(100); }
}
TEMPLATE_TEST_CASE("rows of power 3 with many channels are right", "[cuda]", (Kernels<bf16, 3, 32>),
                   (Kernels<fp16, 3, 32>)) {
  check_some<TestType>();
  SECTION("rotary") { check_rotary<TestType>({66}); }
  SECTION("sums of chunks") { check_update<TestType>(70); }
}
TEMPLATE_TEST_CASE("rows of power 3 and split states are right", "[cuda]", (Kernels<bf16, 3, 16>),
                   (Kernels<fp16, 3, 32>)) {
  check_joined<TestType>({140, 40}, 70, {}, true);
}
