// New tokens on their way into the tail.
#pragma once

#include "../layout/turns.hpp"
#include "decode.hpp"

namespace sympow::cuda {

/// Keys [B, tokens, key heads, d], values [.., e], log gates [B, tokens, state heads] as they come.
template <class T>
struct NewTokens {
  Rows<const T> keys, values;
  Rows<const float> log_gates;  ///< natural; null data: none
};

/// For one block of `threads`: the tokens of sequence b and a state head go to the tail in `slot`, keys and values with
/// the first of the state heads that share them. Keys of rotary turn.
template <class T>
SYMPOW_DEVICE void append_tail(const NewTokens<T>& from, const TailArrays<T>& to, const Rotary& rotary,
                               const Heads& heads, int b, const TailSlot& slot, int state_head, int tokens, int d,
                               int e, Lanes<int> thread, int threads) {
  using namespace block;
  const auto rows = [&](const auto& fresh, const auto& tail, int key_head, int width, bool turns) {
    const std::int64_t first = (std::int64_t{slot.index} * heads.key + key_head) * to.capacity + slot.count;
    SYMPOW_ROLL
    for (int n = 0; n < tokens * (width / 8); n += threads) {
      const Lanes<int> t = (thread + n) / (width / 8), c = (thread + n) % (width / 8) * 8;
      Lanes<Pair<T>> octet[4] = {Pair<T>{}, Pair<T>{}, Pair<T>{}, Pair<T>{}};
      load(octet, fresh.data, fresh.at(b, Lanes<std::int64_t>(t), key_head) + c, t < tokens);
      if (turns) rotary.turn(octet, d, c / 8, d / 16, slot.index, t + slot.count, key_head, t < tokens);
      store(tail, (t + first) * width + c, octet, t < tokens);
    }
  };
  const int shared_by = heads.state / heads.key;
  if (state_head % shared_by == 0) {
    rows(from.keys, to.keys, state_head / shared_by, d, rotary.rates.data != nullptr);
    rows(from.values, to.values, state_head / shared_by, e, false);
  }
  if (!from.log_gates.data.data) return;
  SYMPOW_ROLL
  for (int n = 0; n < tokens; n += threads) {
    const Lanes<int> t = thread + n;
    Lanes<float> gate[1];
    load(gate, from.log_gates.data, from.log_gates.at(b, Lanes<std::int64_t>(t), state_head), t < tokens);
    store(to.log_gates, t + ((std::int64_t{slot.index} * heads.state + state_head) * to.capacity + slot.count), gate,
          t < tokens);
  }
}

}  // namespace sympow::cuda
