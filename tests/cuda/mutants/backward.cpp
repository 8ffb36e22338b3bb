// Gradients in few instantiations, quick to compile.
#include "backward_cases.hpp"

using namespace sympow::test;

TEST_CASE("gradients of power 2 are right", "[cuda]") {
  using Kernel = Kernels<bf16, 2, 16>;
  check_backward_layouts<Kernel>(200);
  check_backward_gates<Kernel>(130);
  check_backward_norms<Kernel>(66);
  check_backward_zeros<Kernel>(70);
  check_backward_not_a_number<Kernel>(140);
  check_backward_large_rows_of_zeros<Kernel>(70);
  check_peaks();
}
TEST_CASE("gradients of other powers and elements are right", "[cuda]") {
  check_backward_norms<Kernels<fp16, 3, 16>>(66);
  check_backward_zeros<Kernels<bf16, 1, 64>>(66);
  check_backward_not_a_number<Kernels<bf16, 1, 64>>(140);
  Case how = case_of<Kernels<fp16, 1, 128>>({140});
  how.log_gate = [](int t) { return t == 70 ? -infinity : t % 40 == 7 ? -1. : -.01; };
  check_backward<Kernels<fp16, 1, 128>>(how);
}
