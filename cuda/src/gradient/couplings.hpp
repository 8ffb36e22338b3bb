// Sums of couplings of a block of rows: what flows through its tokens.
#pragma once

#include "pair_tiles.hpp"

namespace sympow::cuda {

/// 2^exponent factor of a warp's rows 8 g + lane / 4, in shared memory: some registers less than kept.
struct UnitsOfRows {
  block::Shared<double> memory;  // of this warp: of each row both

  SYMPOW_DEVICE UnitsOfRows(block::Shared<double> of_warps, int w) : memory(of_warps.after(32 * w)) {}
  /// Both, before a barrier of the warp.
  SYMPOW_DEVICE void put(int g, Lanes<double> exponent, Lanes<float> factor) const {
    const Lanes<double> both[2] = {exponent, block::convert<double>(factor)};
    store(memory, place(g), both, block::lane() % 4 == 0);
  }
  SYMPOW_DEVICE Lanes<double> exponent(int g) const { return load_one(memory, place(g)); }
  SYMPOW_DEVICE Lanes<float> factor(int g) const { return block::convert<float>(load_one(memory, place(g) + 1)); }
  /// 2^more times that.
  SYMPOW_DEVICE Lanes<double> of(int g, Lanes<double> more) const {
    Lanes<double> both[2];
    load(both, memory, place(g));
    return both[1] * wide_two_to(both[0] + more);
  }

 private:
  SYMPOW_DEVICE static Lanes<int> place(int g) { return (block::lane() / 4 + 8 * g) * 2; }
};

/// The total of four warps, in order.
SYMPOW_DEVICE void store_total(Global<double> to, std::int64_t at, block::Shared<double> totals, int first) {
  Lanes<double> sum[1] = {0.};
  SYMPOW_UNROLL
  for (int v = 0; v < 4; ++v) sum[0] += load_one(totals, Lanes<int>(first + v));
  block::store(to, Lanes<std::int64_t>(block::lane() + at), sum, block::lane() == 0);
}

/// Σ_{j < t ≤ i} t_ij of the warp's rows i and the 64 keys of their own block: sums along j, then down i.
SYMPOW_DEVICE void write_inside(block::Shared<double> to, int w, const PairTile& t, const Lanes<double> (&unit)[2]) {
  using namespace block;
  Lanes<float> sum[2] = {0.f, 0.f};  // of earlier octets
  const Lanes<int> place = lane() % 4;
  SYMPOW_UNROLL
  for (int o = 0; o < 8; ++o) {
    Lanes<double> column[2] = {0., 0.};
    SYMPOW_UNROLL
    for (int g = 0; g < 2; ++g) {
      const Lanes<float> one = t[0][o][2 * g], two = one + t[0][o][2 * g + 1];
      Lanes<float> up_to = two;  // and the lanes before
      SYMPOW_UNROLL
      for (int distance = 1; distance < 4; distance *= 2) {
        const Lanes<float> other = shuffle_up(up_to, distance);
        up_to = where(place >= distance, up_to + other, up_to);
      }
      const Lanes<float> earlier = shuffle_up(up_to, 1), below = where(place >= 1, sum[g] + earlier, sum[g]);
      const Lanes<int> row = lane() / 4 + (16 * w + 8 * g);
      SYMPOW_UNROLL
      for (int h = 0; h < 2; ++h) {
        const Lanes<double> more = coupling_of(h == 0 ? below : below + one, unit[g]);
        column[h] = where(place * 2 + (8 * o + h) <= row, column[h] + more, column[h]);
      }
      sum[g] += shuffle(up_to, lane() / 4 * 4 + 3);
    }
    const Lanes<double> both[2] = {sum_of_column(column[0]), sum_of_column(column[1])};
    store(to, place * 2 + (w * block_tokens + 8 * o), both, lane() < 4);
  }
}

/// The sums of four warps, in order, when all are there: of the 64 tokens, from entry `at` on.
SYMPOW_DEVICE void store_inside(Global<double> to, std::int64_t at, block::Shared<double> inside, int w) {
  using namespace block;
  barrier();
  if (w >= 2) return;
  Lanes<double> all[1] = {0.};
  SYMPOW_UNROLL
  for (int v = 0; v < 4; ++v) all[0] += load_one(inside, lane() + (v * block_tokens + 32 * w));
  store(to, Lanes<std::int64_t>(lane() + (at + 32 * w)), all);
}

}  // namespace sympow::cuda
