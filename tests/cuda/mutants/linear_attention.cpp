// Rows of P 1 that go along their chunks, for the mutants of linear_attention.cmake.
#include "forward_cases.hpp"

using namespace sympow::test;
using Narrow = Along<bf16, 64>;

TEST_CASE("rows are right along a chunk", "[cuda]") {
  check_layouts<Narrow>(300);
  check_gates<Narrow>(200);
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
  check_joined<Narrow>({300, 129, 40}, 70);
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
  // About a reset, what is not a number: a key, a value, values of a tile before that of the reset or that it begins.
  for (const int what : {0, 1, 2, 3}) {
    Case how = case_of<Narrow>({300});
    how.log_gate = [what](int t) { return t == (what == 3 ? 64 : what == 2 ? 96 : 75) ? -infinity : -.01; };
    ArraysOf<Narrow> x(how);
    for (const int t : {70, 74}) x.set(what == 0 ? x.keys : x.values, 0, what >= 2 ? t - 50 : t, 0, 3, not_a_number);
    Forward<bf16, 1, 64> forward(x);
    REQUIRE(forward.run({}).clean());
    RowsOfHead<bf16, 1, 64> rows(x, {}, 0, 0);
    for (int t = 0; t < 300; ++t) {
      CAPTURE(what, t);
      if (what == 3 ? t >= 64 : what == 2 ? t >= 96 : t < 64 || t >= (what == 0 ? 80 : 128))
        REQUIRE(rows.wrong(t) == "");
    }
  }
  Case how = case_of<Narrow>({200});
  how.is_split = true;
  how.heads = {2, 2, 1};
  how.log_gate = [](int t) { return t % 40 == 7 ? -1. : -.01; };
  check<Narrow>(how);
  Case wide = case_of<Along<bf16, 128>>({200});
  wide.log_gate = [](int t) { return t == 100 ? -infinity : -.01; };
  check<Along<bf16, 128>>(wide);
}
