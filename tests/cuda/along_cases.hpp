// Cases of P 1 where a block goes along its chunk with the state.
#pragma once

#include <string>
#include <vector>

#include "forward_cases.hpp"

namespace sympow::test {

/// The condition of rows is that of what they see of the state, whatever the gates.
template <class K>
void check_conditions() {
  std::vector<std::function<double(int)>> gates = kinds_of_gates();
  gates.push_back([](int t) { return t == 100 || t == 144 ? -infinity : -.01; });  // inside of tiles
  for (const auto& gate : gates) {
    Case how = case_of<K>({200});
    how.normalised = true;
    how.log_gate = gate;
    check<K>(how, [](auto& x) {  // sums do not cancel
      for (auto* tokens : {&x.queries, &x.keys})
        for (std::size_t i = 0; i < tokens->data.size(); ++i)
          if (tokens->data.is_set(i)) tokens->data.set(i, round_to<typename K::T>(std::abs(to_float(tokens->data[i]))));
    });
  }
}

/// A state that is far above the keys of the next chunk, gone with a gate of 0 there or not.
template <class K>
void check_far() {
  for (const bool resets : {false, true}) {
    Case far = case_of<K>({330});
    if (resets) far.log_gate = [](int t) { return t == 200 ? -infinity : 0; };
    check<K>(far, [](auto& x) {
      for (int t = 0; t < 330; ++t)
        for (int c = 0; c < K::d; ++c)
          x.set(x.keys, 0, t, 0, c, (t < 192 ? 0x1p60 : 0x1p-80) * (1 + (t * 5 + c * 3) % 7) * ((t + c) % 3 - 1));
    });
  }
}

/// What is not a number, before a gate of 0: a key or a value among its 16 tokens, of which a product would keep it,
/// and values that are in the state when a later tile has the gate, or begins with it.
template <class K>
void check_about_resets() {
  struct {
    bool is_key;
    int token, reset, gone;  // from token `gone` on nothing is left of it
  } const cases[] = {{true, 70, 75, 80}, {false, 70, 75, 128}, {false, 20, 96, 96}, {false, 20, 64, 64}};
  for (const auto& [is_key, token, reset, gone] : cases) {
    Case how = case_of<K>({300});
    how.log_gate = [at = reset](int t) { return t == at ? -infinity : -.01; };
    ArraysOf<K> x(how);
    for (const int t : {token, token + 4}) x.set(is_key ? x.keys : x.values, 0, t, 0, 3, not_a_number);
    Forward<typename K::T, K::P, K::d> forward(x);
    REQUIRE(forward.run({}).clean());
    RowsOfHead<typename K::T, K::P, K::d> rows(x, {}, 0, 0);
    for (int t = 0; t < 300; ++t) {
      CAPTURE(is_key, token, reset, t);
      if (t < token / 64 * 64 || t >= gone) REQUIRE(rows.wrong(t) == "");
    }
  }
}

}  // namespace sympow::test
