// A forward pass of power 1, for all numbers of channels that kernels are made for.
#include "forward_cases.hpp"

using namespace sympow::test;

TEMPLATE_TEST_CASE("rows of power 1 are right", "[cuda]", (Kernels<bf16, 1, 64>), (Kernels<fp16, 1, 64>)) {
  check_all<TestType>();
}
TEMPLATE_TEST_CASE("rows of power 1 with many channels are right", "[cuda]", (Kernels<bf16, 1, 128>),
                   (Kernels<fp16, 1, 128>)) {
  check_some<TestType>();
}
