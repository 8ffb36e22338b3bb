// A forward pass of power 2, for all numbers of channels that kernels are made for.
#include "rotary_cases.hpp"
#include "split_cases.hpp"
#include "update_cases.hpp"

using namespace sympow::test;

TEMPLATE_TEST_CASE("rows of power 2 are right", "[cuda]", (Kernels<bf16, 2, 16>), (Kernels<fp16, 2, 16>),
                   (Kernels<bf16, 2, 64>), (Kernels<fp16, 2, 64>), (Kernels<float, 2, 16>), (Kernels<float, 2, 64>)) {
  check_all<TestType>();
  SECTION("rotary") { check_rotary<TestType>({70, 0, 5}); }
  SECTION("sums of chunks") { check_update<TestType>(150); }
}
TEMPLATE_TEST_CASE("rows of power 2 with many channels are right", "[cuda]", (Kernels<bf16, 2, 32>),
                   (Kernels<fp16, 2, 32>), (Kernels<float, 2, 32>), (Kernels<bf16, 2, 128>), (Kernels<fp16, 2, 128>)) {
  check_some<TestType>();
  SECTION("rotary") { check_rotary<TestType>({66}); }
  SECTION("sums of chunks") { check_update<TestType>(70); }
}
TEMPLATE_TEST_CASE("rows of power 2 and split states are right", "[cuda]", (Kernels<bf16, 2, 64>),
                   (Kernels<fp16, 2, 128>)) {
  check_joined<TestType>({100, 40}, 70, {}, true);
  check_rest<TestType>();
}
