// Gradients of rates, from what blocks of tokens have left.
#pragma once

#include "../layout/blocks.hpp"
#include "../layout/gradients.hpp"

namespace sympow::cuda {

/// d rates_u = Σ rows + Σ keys + Σ passing of AngleArrays, of what is there, over all sequences and heads, in order and
/// in double. ScaleProducts are added up in the same way, as rows of one pair.
///
/// One block of 32 warps, a lane two pairs: each warp takes every 32nd block of tokens.
struct Rates {
  static constexpr int warps = 32, threads = 32 * warps, blocks_per_multiprocessor = 1;
  static constexpr int shared_bytes = 8 * warps * most_channels / 2;

  struct Args {
    AngleArrays angles;
    Global<double> d_rates;  ///< [d/2]
    Sequences sequences;
    Heads heads;
    int pairs;
  };

  static Blocks blocks() { return {}; }

  SYMPOW_DEVICE static void run(const Args& x) {
    using namespace block;
    const int w = warp(), of_chunk = x.sequences.chunk / block_tokens;
    const auto count = static_cast<int>(std::int64_t{x.sequences.batch} * x.sequences.most_chunks() * of_chunk);
    Arena arena;
    const auto sums = arena.take<double>(warps * most_channels / 2);
    for (int from = 0; from < x.pairs; from += 32) {
      const Lanes<int> u = lane() + from;
      const Lanes<bool> there = u < x.pairs;
      Lanes<double> sum[1] = {0.};
      const auto add = [&](const Global<double>& part, std::int64_t at) {
        Lanes<double> one[1] = {0.};
        load(one, part, u + at * x.pairs, there);
        sum[0] += one[0];
      };
      for (int index = w; index < count; index += warps) {
        const TokenBlock of(x.sequences, index);
        if (of.top >= of.length) continue;
        const int own = of.top / block_tokens;
        for (int h = 0; h < x.heads.query; ++h)
          add(x.angles.rows, (std::int64_t{h} * x.sequences.slots + of.slot) * of_chunk + own);
        for (int h = 0; h < x.heads.key; ++h) {
          const std::int64_t slot = std::int64_t{h} * x.sequences.slots + of.slot;
          if (x.angles.keys.data) add(x.angles.keys, slot * of_chunk + own);
          if (own == 0 && x.angles.flows.passing.data) add(x.angles.passing, slot);
        }
      }
      store(sums, lane() + (w * (most_channels / 2) + from), sum);
    }
    barrier();
    if (w > 0) return;
    for (int from = 0; from < x.pairs; from += 32) {
      Lanes<double> all[1] = {0.};
      for (int v = 0; v < warps; ++v) all[0] += load_one(sums, lane() + (v * (most_channels / 2) + from));
      store(x.d_rates, lane() + from + std::int64_t{0}, all, lane() + from < x.pairs);
    }
  }
};

}  // namespace sympow::cuda
