// Keys as gradients of queries multiply them, and the size of values.
#pragma once

#include "../layout/blocks.hpp"
#include "../layout/gradients.hpp"
#include "unit_rows.hpp"

namespace sympow::cuda {

/// Writes k̂_j = 2^{-x_j} k_j, rounded to T, and for each block of 64 tokens of a key head the exponent of its largest
/// value that is finite: 2^z > |v|.
///
/// A block of four warps has 64 tokens of a key head. Of a token d + e channels are read, d written.
template <class T>
struct KeyUnits {
  static constexpr int warps = 4, threads = 32 * warps, blocks_per_multiprocessor = 8, shared_bytes = 128;

  struct Args {
    Rows<const T> keys, values;
    TokenArrays tokens;
    Rows<T> units;                         ///< k̂
    Global<std::int32_t> values_exponent;  ///< z of key head h, block n of a slot at (h slots + slot) chunk / 64 + n
    Sequences sequences;
    Heads heads;
    int d, e;
  };

  static Blocks blocks(const Sequences& sequences, const Heads& heads) {
    return {TokenBlock::count(sequences), heads.key};
  }

  SYMPOW_DEVICE static void run(const Args& x) {
    using namespace block;
    const TokenBlock of(x.sequences, block_index(0));
    if (of.top >= of.length) return;
    const int head = block_index(1), w = warp(), state_head = head * (x.heads.state / x.heads.key);
    const std::int64_t token_slot = (std::int64_t{state_head} * x.sequences.slots + of.slot) * x.sequences.chunk;
    const OctetLanes lanes(larger_of(x.d, x.e));
    constexpr int rows = block_tokens / warps;
    Lanes<float> most = 0.f;
    for (int from = 0; from < rows; from += lanes.rows) {
      const Lanes<int> i = lanes.row + (of.top + w * rows + from);
      const Lanes<bool> exists = i < of.length;
      const Lanes<std::int64_t> t = i + of.begin;
      const Lanes<bool> has_key = exists && lanes.octet * 8 < x.d, has_value = exists && lanes.octet * 8 < x.e;
      const OctetOfRow key(x.keys.data, x.keys.at(of.b, t, head) + lanes.octet * 8, has_key);
      const OctetOfRow value(x.values.data, x.values.at(of.b, t, head) + lanes.octet * 8, has_value);
      const Lanes<float> inverse = load_one(x.tokens.inverse, i + token_slot);
      key.store_scaled(x.units.data, x.units.at(of.b, t, head) + lanes.octet * 8, inverse, has_key);
      const Lanes<float> size = value.largest();
      most = larger(most, where(size <= largest_float, size, 0.f));
    }
    SYMPOW_UNROLL
    for (int mask = 1; mask < 32; mask *= 2) most = larger(most, shuffle_xor(most, mask));
    Arena arena;
    const auto largest = arena.take<float>(warps);
    const Lanes<float> own[1] = {most};
    store(largest, lane() + w, own, lane() == 0);
    barrier();
    if (w != 0) return;
    Lanes<float> all[std::size_t{warps}];
    load(all, largest, Lanes<int>(0));
    const Lanes<std::int32_t> exponent[1] = {exponent_above(larger(larger(all[0], all[1]), larger(all[2], all[3])))};
    const std::int64_t slot = std::int64_t{head} * x.sequences.slots + of.slot;
    store(x.values_exponent,
          Lanes<std::int64_t>(lane() + (slot * (x.sequences.chunk / block_tokens) + of.top / block_tokens)), exponent,
          lane() == 0);
  }

 private:
  SYMPOW_DEVICE static int larger_of(int a, int b) { return a > b ? a : b; }
};

}  // namespace sympow::cuda
