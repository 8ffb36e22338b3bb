// A forward pass: every row within its bound, in every layout of a batch. The long tests have all of it in fp16, too.
#include "along_cases.hpp"
#include "rotary_cases.hpp"
#include "split_cases.hpp"
#include "update_cases.hpp"

using namespace sympow::test;

using Small = Kernels<bf16, 2, 16>;
using Narrow = Along<bf16, 64>;

#define SYMPOW_SMALL Small, (Kernels<fp16, 2, 16>)

TEMPLATE_TEST_CASE("sums of chunks are right", "[cuda]", SYMPOW_SMALL) { check_update<TestType>(70); }
TEST_CASE("rows are right in every layout of a batch", "[cuda]") { check_layouts<Small>(129); }
TEST_CASE("rows are right for all gates", "[cuda]") { check_gates<Small>(130); }
TEMPLATE_TEST_CASE("rows are right for all norms and scales", "[cuda]", SYMPOW_SMALL) { check_norms<TestType>(100); }
TEST_CASE("rows that see only zeros are zero", "[cuda]") { check_zeros<Small>(80); }
TEST_CASE("two runs joined are one", "[cuda]") { check_joined<Small>({150, 129, 40}, 70); }
TEST_CASE("rows of rotary are right, whatever their angles", "[cuda]") {
  check_rotary<Small>({70, 0, 5});
  check_lost_angles<Small>(80, 66);
}
TEMPLATE_TEST_CASE("what is not a number shows where it is seen", "[cuda]", SYMPOW_SMALL) {
  check_not_a_number<TestType>(140);
}
TEST_CASE("what a reset hides is not read", "[cuda]") {
  check_hidden<Small>();
  check_hidden<Kernels<bf16, 1, 64>>();
}
TEMPLATE_TEST_CASE("rows are the same in any order of warps", "[cuda]", SYMPOW_SMALL) {
  Case how = case_of<TestType>({130});
  how.log_gate = [](int t) { return t % 40 == 7 ? -1. : -.01; };
  check_orders<TestType>(how);
}
TEST_CASE("rows of 64 channels are right", "[cuda]") {
  using Kernel = Kernels<bf16, 2, 64>;
  Case how = case_of<Kernel>({70});
  how.log_gate = [](int t) { return t % 40 == 7 ? -1. : -.01; };
  check<Kernel>(how);
  how.rotary = Rotation{true, {}, 0};
  check<Kernel>(how);
}

// ---- rows of P 1 where a block goes along its chunk with the state ----

TEST_CASE("rows are right along a chunk, for all gates and layouts", "[cuda]") {
  check_layouts<Narrow>(300);
  check_gates<Narrow>(200);
  check_joined<Narrow>({300, 129, 40}, 70);
}
TEST_CASE("the condition of rows along a chunk is that of what they see of the state", "[cuda]") {
  check_conditions<Narrow>();
}
TEST_CASE("rows are right along a chunk, for all norms and zeros", "[cuda]") {
  check_norms<Narrow>(140);
  check_far<Narrow>();
  check_zeros<Narrow>(140);
}
TEST_CASE("rows along a chunk are the same in any order of warps", "[cuda]") {
  Case how = case_of<Narrow>({200});
  how.log_gate = [](int t) { return t % 40 == 7 ? -1. : -.01; };
  check_orders<Narrow>(how);
}
TEST_CASE("what is not a number goes along until a reset", "[cuda]") {
  check_not_a_number<Narrow>(200);
  check_about_resets<Narrow>();
}
TEST_CASE("split states stay so along a chunk", "[cuda]") {
  check_split<Narrow>();
  check_rest<Narrow>();
}

/// The whole chunk is what one block reads and writes, and each of its numbers once.
TEST_CASE("a block moves its chunk once", "[cuda]") {
  Case how = case_of<Narrow>({384});
  how.heads = {2, 2, 2};
  how.log_gate = [](int) { return -.01; };
  ArraysOf<Narrow> x(how);
  Forward<bf16, 1, 64> forward(x);
  REQUIRE(forward.states({}).clean());
  const host::Report report = forward.attention({}, true);
  INFO(report.text());
  REQUIRE(report.clean());
  const long tokens = 384 * 2, chunks = 2 * 2, numbers = 3 * 8 + 3 * 4, state = 64 * (64 + 4) * 2;
  const long level = 3;  // L, A and the shift, a sector each, asked for by every warp
  REQUIRE(report.global().ideal == (tokens * (4 * 64 * 2 + numbers + 4) + chunks * state) / 32 +
                                       chunks * level * LinearAttention<bf16, 64>::warps);
}
