// A backward pass of all powers and numbers of channels that kernels are made for.
#include "backward_cases.hpp"
#include "rotary_backward.hpp"

using namespace sympow::test;

TEMPLATE_TEST_CASE("gradients are right", "[cuda]", (Kernels<bf16, 1, 64>), (Kernels<fp16, 2, 32>),
                   (Kernels<fp16, 2, 64>), (Kernels<bf16, 3, 16>), (Kernels<fp16, 4, 16>)) {
  SECTION("layouts") { check_backward_layouts<TestType>(200); }
  SECTION("gates") { check_backward_gates<TestType>(200); }
  SECTION("norms") { check_backward_norms<TestType>(140); }
  SECTION("zeros") { check_backward_zeros<TestType>(140); }
  SECTION("not a number") { check_backward_not_a_number<TestType>(200); }
  SECTION("orders") {
    Case how = case_of<TestType>({130});
    how.log_gate = [](int t) { return t % 40 == 7 ? -1. : -.01; };
    check_backward_orders<TestType>(how);
  }
}
TEMPLATE_TEST_CASE("gradients of many channels are right", "[cuda]", (Kernels<fp16, 1, 64>), (Kernels<bf16, 1, 128>),
                   (Kernels<fp16, 1, 128>), (Kernels<bf16, 2, 32>), (Kernels<bf16, 2, 64>), (Kernels<bf16, 2, 128>),
                   (Kernels<fp16, 2, 128>), (Kernels<fp16, 3, 16>), (Kernels<bf16, 3, 32>), (Kernels<fp16, 3, 32>),
                   (Kernels<bf16, 4, 16>), (Kernels<bf16, 4, 32>), (Kernels<fp16, 4, 32>)) {
  Case how = case_of<TestType>({130, 0, 1});
  how.e = 72;
  how.heads = {2, 2, 1};
  how.log_gate = [](int t) { return t == 20 ? -infinity : t % 40 == 7 ? -1. : -.01; };
  check_backward<TestType>(how);
  how.packed = true;
  check_backward<TestType>(how, {}, 1);
}
TEMPLATE_TEST_CASE("gradients of the chunked form are right for more kernels", "[cuda]", (Kernels<bf16, 1, 128>),
                   (Kernels<bf16, 2, 64>), (Kernels<fp16, 2, 128>), (Kernels<bf16, 4, 16>)) {
  Case how = case_of<TestType>({130});
  how.e = 72;
  how.heads = {2, 2, 1};
  how.log_gate = [](int t) { return t == 20 ? -infinity : t % 40 == 7 ? -1. : -.01; };
  check_chunked<TestType>(how, {0, 70, 1 << 30});
}
TEMPLATE_TEST_CASE("gradients of rotary are right for more kernels", "[cuda]", (Kernels<fp16, 1, 128>),
                   (Kernels<bf16, 2, 64>), (Kernels<bf16, 2, 128>), (Kernels<fp16, 2, 128>), (Kernels<fp16, 4, 16>)) {
  Case how = case_of<TestType>({130});
  how.e = 72;
  how.heads = {2, 2, 1};
  how.log_gate = [](int t) { return t % 40 == 7 ? -1. : -.01; };
  for (const bool halves : {false, true}) {
    how.rotary = Rotation{halves, small_step, 0};
    check_aligned<TestType>(how, {});
    check_turned<TestType>(how, {0, 70, 1 << 30});
  }
}
TEMPLATE_TEST_CASE("gradients of floats are right for more kernels", "[cuda]", (Kernels<float, 1, 64>),
                   (Kernels<float, 2, 32>), (Kernels<float, 2, 64>), (Kernels<float, 3, 16>), (Kernels<float, 4, 16>)) {
  for (const Products products : {Products::exact, Products::fast}) {
    Case how = case_of<TestType>({130, 0, 1});
    how.e = 72;
    how.heads = {2, 2, 1};
    how.products = products;
    how.log_gate = [](int t) { return t == 20 ? -infinity : t % 40 == 7 ? -1. : -.01; };
    check_backward<TestType>(how);
    check_chunked<TestType>(how, {0, 70, 1 << 30});
    how.lengths = {130};
    how.log_gate = [](int) { return -.01; };
    how.rotary = Rotation{products == Products::fast, small_step, 0};
    check_aligned<TestType>(how, {0, 70, 1 << 30});
  }
}
TEMPLATE_TEST_CASE("gradients of split states are right for more kernels", "[cuda]", (Kernels<bf16, 1, 128>),
                   (Kernels<fp16, 2, 32>), (Kernels<bf16, 2, 64>), (Kernels<fp16, 2, 128>), (Kernels<bf16, 3, 16>),
                   (Kernels<fp16, 4, 16>)) {
  Case how = case_of<TestType>({130});
  how.is_split = true;
  how.e = 72;
  how.heads = {2, 2, 1};
  how.log_gate = [](int t) { return t % 40 == 7 ? -1. : -.01; };
  check_chunked<TestType>(how, {0, 70, 1 << 30});
  how.rotary = Rotation{false, small_step, 0};
  check_aligned<TestType>(how, {0, 70, 1 << 30});
}
