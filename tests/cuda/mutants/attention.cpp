// Rows of attention in few instantiations, quick to compile.
#include "forward_cases.hpp"

using namespace sympow::test;

TEST_CASE("rows of power 2 are right", "[cuda]") {
  using Kernel = Kernels<bf16, 2, 16>;
  check_layouts<Kernel>(129);
  check_gates<Kernel>(130);
  check_norms<Kernel>(100);
  check_zeros<Kernel>(80);
  check_joined<Kernel>({150, 129, 40}, 70);
  check_not_a_number<Kernel>(140);
  check_hidden<Kernel>();
  Case how = case_of<Kernel>({350, 127});
  how.chunk = 192;
  how.log_gate = [](int t) { return t % 40 == 7 ? -1. : -.01; };
  check<Kernel>(how);
}
TEST_CASE("rows of other powers are right", "[cuda]") {
  check_layouts<Kernels<bf16, 3, 16>>(65);
  check_norms<Kernels<bf16, 3, 16>>(70);
  Case how = case_of<Kernels<bf16, 1, 128>>({140});
  how.log_gate = [](int t) { return t == 70 ? -infinity : t % 40 == 7 ? -1. : -.01; };
  check<Kernels<bf16, 1, 128>>(how);
}
