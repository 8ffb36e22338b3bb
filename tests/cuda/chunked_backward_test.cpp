// Gradients of the chunked form: by the gradient row rule and by their roundings, in one call and in several.
#include "chunked_backward.hpp"

using namespace sympow::test;

#define SYMPOW_SMALL (Kernels<bf16, 2, 16>), (Kernels<fp16, 2, 16>)

TEST_CASE("gradients of the chunked form are right in every layout of a batch", "[cuda]") {
  check_chunked_layouts<Kernels<bf16, 2, 16>>();
}
TEST_CASE("gradients of the chunked form are right for all gates", "[cuda]") {
  check_chunked_gates<Kernels<bf16, 2, 16>>(140);
}
TEMPLATE_TEST_CASE("gradients of the chunked form are right for all norms and scales", "[cuda]", SYMPOW_SMALL) {
  check_chunked_norms<TestType>(150);
}
TEST_CASE("the gradient of the scale of sums of one sign", "[cuda]") {
  for (const int length : {1, 20, 70}) check_large_values<Kernels<bf16, 3, 16>>(1, false, length);
}
TEST_CASE("gradients of several calls are those of one", "[cuda]") { check_calls<Kernels<bf16, 2, 16>>(true); }
TEMPLATE_TEST_CASE("gradients of the chunked form are right for other powers", "[cuda]", (Kernels<fp16, 1, 64>),
                   (Kernels<bf16, 3, 16>)) {
  check_calls<TestType>(false);
}
