// How far tokens have turned: running sums of β.
#pragma once

#include "../layout/blocks.hpp"
#include "../layout/tail_slots.hpp"
#include "../layout/turns.hpp"

namespace sympow::cuda {

/// path_i = path_{i-1} + β_i over the tokens of each sequence and key head, and the angles before and after them:
/// angles · 2π = begin · 2π + path · rates. All in double; the order of sums is fixed. What is not finite stays. Paths
/// and angles lie in the slots of the sequences.
///
/// A block of 32 warps makes a sequence and head, 8192 tokens at a time, eight of them a lane.
/// Of a token and head 4 bytes are read, 8 written.
struct Paths {
  static constexpr int warps = 32, threads = 32 * warps, each = 8, blocks_per_multiprocessor = 1;
  static constexpr int shared_bytes = 2 * warps * 8;

  struct Args {
    Rows<const float> beta;       ///< [B, T, Hk]; data null: all are 1
    Rows<double> paths;           ///< [slots, count + T, Hk]
    Sequences sequences;          ///< of T tokens or fewer
    TailSlots slots;              ///< counts: tokens before them, whose paths are known; of padded sequences
    int key_heads, pairs;         ///< Hk, d/2
    Global<const double> rates;   ///< [d/2], in radians
    Global<const double> before;  ///< [slots, Hk, d/2]: where paths begin, in turns; null: 0
    Global<double> begin;         ///< the same to be kept; null: not wanted
    Global<double> after;         ///< the angles after the last token; null: not wanted. It may be `before`.
  };

  static Blocks blocks(int batch, int key_heads) { return {batch, key_heads}; }

  SYMPOW_DEVICE static void run(const Args& x) {
    using namespace block;
    const int w = warp(), b = block_index(0), h = block_index(1);
    const TailSlot slot = x.slots[b];
    if (!slot.is_active()) return;
    const Sequence sequence = x.sequences[b];
    Arena arena;
    const auto sums = arena.take<double>(2 * warps);

    Lanes<double> path[1] = {0.};  // of all tokens so far
    if (slot.count > 0)
      load(path, x.paths.data, Lanes<std::int64_t>(x.paths.at(slot.index, std::int64_t{slot.count - 1}, h)));
    for (int from = 0; from < sequence.length; from += threads * each) {
      const Lanes<int> i = lane() + (from + 32 * each * w);
      Lanes<double> sum[std::size_t{each}];
      SYMPOW_UNROLL
      for (int n = 0; n < each; ++n) {
        Lanes<float> beta[1] = {1.f};
        const Lanes<bool> there = i + 32 * n < sequence.length;
        if (x.beta.data.data) load(beta, x.beta.data, x.beta.at(b, i + (sequence.first + 32 * n), h), there);
        sum[n] = where(there, convert<double>(beta[0]), 0.);
      }
      SYMPOW_UNROLL
      for (int n = 0; n < each; ++n) {
        sum[n] = sum_up_to(sum[n]);
        if (n > 0) sum[n] += shuffle(sum[n - 1], 31);
      }
      // One barrier a pass: the next one writes the other half.
      const int half = from / (threads * each) % 2 * warps;
      const Lanes<double> last[1] = {sum[each - 1]};
      store(sums, lane() - 31 + (half + w), last, lane() == 31);
      barrier();
      Lanes<double> of_warp[1];
      load(of_warp, sums, lane() + half);
      const Lanes<double> of_warps = sum_up_to(of_warp[0]);
      const Lanes<double> before = w > 0 ? path[0] + shuffle(of_warps, w - 1) : path[0];
      path[0] += shuffle(of_warps, 31);
      SYMPOW_UNROLL
      for (int n = 0; n < each; ++n) {
        const Lanes<double> one[1] = {before + sum[n]};
        store(x.paths.data, x.paths.at(slot.index, i + (sequence.first + slot.count + 32 * n), h), one,
              i + 32 * n < sequence.length);
      }
    }

    for (int from = 32 * w; from < x.pairs; from += threads) {
      const Lanes<int> j = lane() + from;
      const Lanes<bool> there = j < x.pairs;
      const Lanes<std::int64_t> at = j + (std::int64_t{slot.index} * x.key_heads + h) * x.pairs;
      Lanes<double> turns[1] = {0.}, rate[1] = {0.};
      if (x.before.data) load(turns, x.before, at, there);
      if (x.begin.data) store(x.begin, at, turns, there);
      if (!x.after.data) continue;
      load(rate, x.rates, j, there);
      turns[0] = turns_after(turns[0], path[0], rate[0]);
      store(x.after, at, turns, there);
    }
  }

 private:
  /// Of the lanes up to each one.
  SYMPOW_DEVICE static Lanes<double> sum_up_to(Lanes<double> x) {
    SYMPOW_UNROLL
    for (int distance = 1; distance < 32; distance *= 2) {
      const Lanes<double> before = block::shuffle_up(x, distance);
      x = block::where(block::lane() < distance, x, x + before);
    }
    return x;
  }
};

}  // namespace sympow::cuda
