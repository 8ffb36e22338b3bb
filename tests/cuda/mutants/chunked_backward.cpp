// Gradients of the chunked form in few cases, quick to compile.
#include "chunked_backward.hpp"

using namespace sympow::test;

TEST_CASE("gradients of the chunked form in several calls", "[cuda]") {
  using Kernel = Kernels<bf16, 2, 16>;
  Case how = case_of<Kernel>({270, 70, 0});
  how.e = 72;
  how.chunk = 128;
  how.heads = {4, 2, 1};
  how.log_gate = [](int t) { return t == 150 ? -infinity : t % 40 == 7 ? -1. : -.01; };
  check_chunked<Kernel>(how, {0, 1 << 30});
  how.lengths = {140, 70, 0};
  how.e = 8;
  how.chunk = 64;
  check_chunked<Kernel>(how, {0, 30, 94, 95, 1 << 30});
}
TEST_CASE("gradients of large values", "[cuda]") { check_large_values<Kernels<fp16, 2, 16>>(0x1p12); }
TEST_CASE("the gradient of the scale of sums of one sign", "[cuda]") {
  for (const int length : {1, 20, 70}) check_large_values<Kernels<bf16, 3, 16>>(1, false, length);
}
TEST_CASE("gradients of the chunked form of sums", "[cuda]") {
  using Kernel = Kernels<bf16, 3, 16>;
  Case how = case_of<Kernel>({200});
  how.e = 16;
  how.scale = -2;
  how.log_gate = [](int) { return -.02; };
  check_chunked<Kernel>(how);
}
