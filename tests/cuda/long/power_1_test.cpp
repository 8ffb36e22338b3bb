// A forward pass of power 1, for all numbers of channels that kernels are made for.
#include "rotary_cases.hpp"
#include "split_cases.hpp"
#include "update_cases.hpp"

using namespace sympow::test;

TEMPLATE_TEST_CASE("rows of power 1 are right", "[cuda]", (Kernels<bf16, 1, 64>), (Kernels<fp16, 1, 64>),
                   (Kernels<float, 1, 64>)) {
  check_all<TestType>();
  SECTION("rotary") { check_rotary<TestType>({70, 0, 5}); }
  SECTION("sums of chunks") { check_update<TestType>(150); }
}
// Keys and queries ±1: exact numbers. Of 64 tokens before the chunk the state has read 64, the normaliser falls from
// 64.
TEMPLATE_TEST_CASE("a row is degenerate from the threshold on", "[cuda]", (Kernels<bf16, 1, 64>),
                   (Kernels<fp16, 1, 64>)) {
  Case how{{120}};
  how.noise = .25f;
  ArraysOf<TestType> x(how);
  for (int t = 0; t < 120; ++t) {
    x.set_row(x.keys, 0, t, 0, 0);
    x.set_row(x.queries, 0, t, 0, 0);
    x.set(x.keys, 0, t, 0, 5, t < 64 ? 1 : -1);
    x.set(x.queries, 0, t, 0, 5, 1);
  }
  Forward<typename TestType::T, 1, 64> forward(x);
  REQUIRE(forward.run({}).clean());
  for (int t = 64; t < 120; ++t) {
    const int normaliser = 64 - (t - 63);
    const float condition = x.condition.data[x.condition.at(0, t, 0, 0)];
    CAPTURE(t, condition);
    REQUIRE(std::isinf(condition) == (normaliser <= 16));
    REQUIRE((normaliser <= 16 || std::abs(condition - 64.f / static_cast<float>(normaliser)) < 1e-5f));
    REQUIRE((to_float(x.rows.data[x.rows.at(0, t, 0, 9)]) == 0) == (normaliser <= 16));
  }
}
TEMPLATE_TEST_CASE("rows of power 1 with many channels are right", "[cuda]", (Kernels<bf16, 1, 128>),
                   (Kernels<fp16, 1, 128>)) {
  check_some<TestType>();
  SECTION("rotary") { check_rotary<TestType>({66}); }
  SECTION("sums of chunks") { check_update<TestType>(70); }
}
TEMPLATE_TEST_CASE("rows of power 1 and split states are right", "[cuda]", (Kernels<bf16, 1, 128>),
                   (Kernels<fp16, 1, 128>)) {
  check_split<TestType>();
  check_rest<TestType>();
}
