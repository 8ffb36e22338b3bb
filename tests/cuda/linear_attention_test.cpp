// Rows of P 1 where a block goes along its chunk with the state.
#include "rotary_cases.hpp"
#include "split_cases.hpp"
#include "update_cases.hpp"

using namespace sympow::test;

using Narrow = Along<bf16, 64>;

TEST_CASE("rows are right along a chunk, for all gates and layouts", "[cuda]") {
  check_layouts<Narrow>(300);
  check_gates<Narrow>(200);
  check_joined<Narrow>({300, 129, 40}, 70);
}
TEST_CASE("the condition of rows along a chunk is that of what they see of the state", "[cuda]") {
  std::vector<std::function<double(int)>> gates = kinds_of_gates();
  gates.push_back([](int t) { return t == 100 || t == 144 ? -infinity : -.01; });  // inside of tiles
  for (const auto& gate : gates) {
    Case how = case_of<Narrow>({200});
    how.normalised = true;
    how.log_gate = gate;
    check<Narrow>(how, [](auto& x) {  // sums do not cancel
      for (auto* tokens : {&x.queries, &x.keys})
        for (std::size_t i = 0; i < tokens->data.size(); ++i)
          if (tokens->data.is_set(i)) tokens->data.set(i, round_to<bf16>(std::abs(to_float(tokens->data[i]))));
    });
  }
}
TEST_CASE("rows are right along a chunk, for all norms and zeros", "[cuda]") {
  check_norms<Narrow>(140);
  for (const bool resets : {false, true}) {  // a state that is far above the keys of the next chunk, gone or not
    Case far = case_of<Narrow>({330});
    if (resets) far.log_gate = [](int t) { return t == 200 ? -infinity : 0; };
    check<Narrow>(far, [](auto& x) {
      for (int t = 0; t < 330; ++t)
        for (int c = 0; c < 64; ++c)
          x.set(x.keys, 0, t, 0, c, (t < 192 ? 0x1p60 : 0x1p-80) * (1 + (t * 5 + c * 3) % 7) * ((t + c) % 3 - 1));
    });
  }
  check_zeros<Narrow>(140);
}
TEST_CASE("rows along a chunk are the same in any order of warps", "[cuda]") {
  Case how = case_of<Narrow>({200});
  how.log_gate = [](int t) { return t % 40 == 7 ? -1. : -.01; };
  check_orders<Narrow>(how);
}
TEST_CASE("what is not a number goes along until a reset", "[cuda]") {
  check_not_a_number<Narrow>(200);
  // A key or value among the 16 tokens of the reset, of which a product would keep it; values that are in the state when
  // a reset begins a tile.
  for (const int what : {0, 1, 2}) {
    Case how = case_of<Narrow>({300});
    how.log_gate = [what](int t) { return t == (what == 2 ? 64 : 75) ? -infinity : -.01; };
    ArraysOf<Narrow> x(how);
    for (const int t : {70, 74}) x.set(what == 0 ? x.keys : x.values, 0, what == 2 ? t - 50 : t, 0, 3, not_a_number);
    Forward<bf16, 1, 64> forward(x);
    REQUIRE(forward.run({}).clean());
    RowsOfHead<bf16, 1, 64> rows(x, {}, 0, 0);
    for (int t = 0; t < 300; ++t) {
      CAPTURE(what, t);
      if (what == 2 ? t >= 64 : t < 64 || t >= (what == 0 ? 80 : 128)) REQUIRE(rows.wrong(t) == "");
    }
  }
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
