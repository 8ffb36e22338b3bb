// Rotary in gradients: the rows of a warp turn back, and what flows through angles.
#pragma once

#include "pair_tiles.hpp"

namespace sympow::cuda {

/// The pairs of channels that turn, of sums of 16 rows of d channels in registers: a lane has d/8 of them in each of its
/// two rows.
template <int d>
struct ChannelPairs {
  static constexpr int count = d / 8;
  bool halves;

  /// f(p, n, h, m, i): the first of the lane's pair p is its column h of octet n, the second its column i of octet m.
  template <class F>
  SYMPOW_DEVICE void each(const F& f) const {
    if (halves) {
      SYMPOW_UNROLL
      for (int p = 0; p < count; ++p) f(p, p / 2, p % 2, p / 2 + d / 16, p % 2);
    } else {
      SYMPOW_UNROLL
      for (int p = 0; p < count; ++p) f(p, p, 0, p, 1);
    }
  }
  /// Which one of the d/2 it is.
  SYMPOW_DEVICE Lanes<int> pair(int p) const {
    return halves ? block::lane() % 4 * 2 + (p / 2 * 8 + p % 2) : block::lane() % 4 + 4 * p;
  }
};

/// path_i of token i of the block's chunk; 0 before the sequence. i = -1 is the token before the chunk.
SYMPOW_DEVICE Lanes<double> path_of(const Rotary& rotary, const TokenBlock& of, int head, Lanes<int> i) {
  Lanes<double> path[1] = {0.};
  load(path, rotary.paths.data, rotary.paths.at(of.b, i + of.begin, head), i >= 0 || of.chunk > 0);
  return path[0];
}

/// Sums of a warp's rows turn back by the angles of their tokens: rows 8 g + lane / 4 are tokens `first` … of the block's
/// chunk, those beyond its end like the last.
template <int d>
SYMPOW_DEVICE void turn_back(Lanes<float> (&sum)[std::size_t{d / 8}][4], const Rotary& rotary, const TokenBlock& of,
                             int head, int first) {
  using namespace block;
  const ChannelPairs<d> pairs{rotary.halves};
  const std::int64_t row = (std::int64_t{of.b} * rotary.key_heads + head) * (d / 2);
  Lanes<double> path[2];
  SYMPOW_UNROLL
  for (int g = 0; g < 2; ++g)
    path[g] = path_of(rotary, of, head, smaller(lane() / 4 + (first + 8 * g), Lanes<int>(of.length - 1)));
  pairs.each([&](int p, int n, int h, int m, int i) {
    const Lanes<std::int64_t> j = pairs.pair(p) + std::int64_t{0};
    const Lanes<double> rate = load_one(rotary.rates, j), begin = load_one(rotary.begin, j + row);
    SYMPOW_UNROLL
    for (int g = 0; g < 2; ++g) {
      Lanes<float>&one = sum[n][2 * g + h], &other = sum[m][2 * g + i];
      const Turn by = turn_of(turns_after(begin, path[g], rate));
      const Lanes<float> before = one;
      one = by.cosine * before + by.sine * other;
      other = by.cosine * other - by.sine * before;
    }
  });
}

/// Sums of a warp's rows, from token `first` on, that others go on with.
template <int d>
SYMPOW_DEVICE void keep_sums(const KeptSums& to, std::int64_t first, const Lanes<float> (&sum)[std::size_t{d / 8}][4],
                             const Lanes<double> (&unit)[2]) {
  using namespace block;
  SYMPOW_UNROLL
  for (int g = 0; g < 2; ++g) {
    const Lanes<std::int64_t> row = lane() / 4 + (first + 8 * g);
    const Lanes<double> one[1] = {unit[g]};
    store(to.units, row, one, lane() % 4 == 0);
    SYMPOW_UNROLL
    for (int o = 0; o < d / 8; ++o) {
      const Lanes<float> two[2] = {sum[o][2 * g], sum[o][2 * g + 1]};
      store(to.sums, row * d + (lane() % 4 * 2 + 8 * o), two);
    }
  }
}

/// Flows through angles of a warp's 16 rows x̂ in shared memory: ⟨s, J_u x̂⟩ of sums s in registers.
template <class T, int d>
struct AngleRows {
  static constexpr int entries = 64;  // of `sums`, a warp
  Global<const double> rates;
  ChannelPairs<d> pairs;
  block::Shared<T> rows;
  int first;                   // of the warp
  block::Shared<double> sums;  // of this warp, by pairs: what comes back to rates

  SYMPOW_DEVICE AngleRows(const Rotary& rotary, block::Shared<T> memory, int own, block::Shared<double> all, int w)
      : rates(rotary.rates), pairs{rotary.halves}, rows(memory), first(own), sums(all.after(w * entries)) {}
  /// Before anything is added.
  SYMPOW_DEVICE void clear() const {
    const Lanes<double> zero[2] = {0., 0.};
    block::store(sums, block::lane() * 2, zero);
    block::warp_barrier();
  }
  /// Of sums in units of their rows 8 g + lane / 4: Σ_u rates_u ⟨s, J_u x̂⟩ of each, and adds these flows to what comes
  /// back to rates, times how far their angles go on.
  SYMPOW_DEVICE void add(Lanes<double> (&total)[2], const Lanes<float> (&sum)[std::size_t{d / 8}][4],
                         const Lanes<double> (&unit)[2], const Lanes<double> (&path)[2]) const {
    Lanes<float> all[2] = {0.f, 0.f};
    pairs.each([&](int p, int n, int h, int m, int i) {
      const Lanes<float> rate = rate_of(p);
      Lanes<double> part = 0.;
      SYMPOW_UNROLL
      for (int g = 0; g < 2; ++g) {
        const Lanes<float> flow = sum[m][2 * g + i] * entry(g, n, h) - sum[n][2 * g + h] * entry(g, m, i);
        all[g] += rate * flow;
        part += coupling_of(flow, unit[g]) * path[g];
      }
      add_rate(p, part);
    });
    SYMPOW_UNROLL
    for (int g = 0; g < 2; ++g) total[g] = coupling_of(sum_of_row(all[g]), unit[g]);
  }
  /// Adds Σ_ij C_ij dx_ij ⟨k̂_j, J_u x̂_i⟩ of a tile of C_ij dx_ij, which is rounded to T, and its 64 keys.
  SYMPOW_DEVICE void add_pairs(const PairTile& tile, block::Shared<T> keys, const Lanes<double> (&unit)[2]) const {
    using namespace block;
    Lanes<Pair<T>> left[4][1][4];
    left_factors(left, tile, false);
    SYMPOW_UNROLL
    for (int o = 0; o < d / 16; ++o) {
      const int n = pairs.halves ? o : 2 * o, m = pairs.halves ? o + d / 16 : 2 * o + 1;
      Lanes<float> sum[2][4];
      SYMPOW_UNROLL
      for (int r = 0; r < 4; ++r) sum[0][r] = sum[1][r] = 0.f;
      SYMPOW_UNROLL
      for (int step = 0; step < 4; ++step) {
        Lanes<Pair<T>> factor[4];
        ldmatrix<true>(factor, keys, octet_place<d>(lane() % 16 + 16 * step, where(lane() < 16, n, m)));
        const Lanes<Pair<T>> one[2] = {factor[0], factor[1]}, other[2] = {factor[2], factor[3]};
        mma<block::Products::exact>(sum[0], left[step][0], one);
        mma<block::Products::exact>(sum[1], left[step][0], other);
      }
      SYMPOW_UNROLL
      for (int h = 0; h < 2; ++h) {
        Lanes<double> part = 0.;
        SYMPOW_UNROLL
        for (int g = 0; g < 2; ++g) {
          const int octet = h == 0 ? n : m;
          const Lanes<float> flow = pairs.halves
                                        ? sum[1][2 * g + h] * entry(g, n, h) - sum[0][2 * g + h] * entry(g, m, h)
                                        : sum[h][2 * g + 1] * entry(g, octet, 0) - sum[h][2 * g] * entry(g, octet, 1);
          part += coupling_of(flow, unit[g]);
        }
        add_rate(2 * o + h, part);
      }
    }
  }
  /// In the place of the rows 2^-t Σ_u rates_u J_u x̂, rounded to T, 2^t > max |rates|: returns t.
  SYMPOW_DEVICE Lanes<int> turn_rows() const {
    using namespace block;
    Lanes<float> largest = 0.f;
    pairs.each([&](int p, int, int, int, int) { largest = larger(largest, absolute(rate_of(p))); });
    largest = larger(largest, shuffle_xor(largest, 1));
    largest = larger(largest, shuffle_xor(largest, 2));
    const Lanes<int> t = exponent_above(largest);
    const Lanes<float> shrink = two_to(-t);
    const auto place = [&](int g, int n) { return octet_place<d>(lane() / 4 + (first + 8 * g), n) / 2 + lane() % 4; };
    const auto memory = rows.template as<Pair<T>>();
    warp_barrier();
    SYMPOW_UNROLL
    for (int g = 0; g < 2; ++g) {
      SYMPOW_UNROLL
      for (int o = 0; o < d / 16; ++o) {
        const int n = pairs.halves ? o : 2 * o, m = pairs.halves ? o + d / 16 : 2 * o + 1;
        const Lanes<Pair<T>> one = load_one(memory, place(g, n)), other = load_one(memory, place(g, m));
        const Lanes<float> a = rate_of(2 * o) * shrink, b = rate_of(2 * o + 1) * shrink;
        Lanes<Pair<T>> turned[2][1];
        if (pairs.halves) {
          turned[0][0] = pack<T>(-a * lower(other), -b * upper(other));
          turned[1][0] = pack<T>(a * lower(one), b * upper(one));
        } else {
          turned[0][0] = pack<T>(-a * upper(one), a * lower(one));
          turned[1][0] = pack<T>(-b * upper(other), b * lower(other));
        }
        store(memory, place(g, n), turned[0]);
        store(memory, place(g, m), turned[1]);
      }
    }
    warp_barrier();
    return t;
  }

  /// What comes back to rates from the block's four warps, in order, when all have added: from entry `at` on.
  SYMPOW_DEVICE void store_rates(Global<double> to, std::int64_t at, int w) const {
    using namespace block;
    barrier();
    if (w > 0) return;
    SYMPOW_UNROLL
    for (int from = 0; from < d / 2; from += 32) {
      Lanes<double> all[1] = {0.};
      SYMPOW_UNROLL
      for (int v = 0; v < 4; ++v) all[0] += load_one(sums, lane() % (d / 2) + (from + v * entries));
      store(to, Lanes<std::int64_t>(lane() + (at + from)), all, lane() + from < d / 2);
    }
  }

 private:
  /// Adds to what comes back to the rate of pair p a lane's part of it.
  SYMPOW_DEVICE void add_rate(int p, Lanes<double> part) const {
    using namespace block;
    Lanes<double> one[1] = {0.};
    load(one, sums, pairs.pair(p), lane() < 4);
    one[0] += sum_of_column(part);
    store(sums, pairs.pair(p), one, lane() < 4);
  }
  SYMPOW_DEVICE Lanes<float> rate_of(int p) const {
    return block::convert<float>(load_one(rates, pairs.pair(p) + std::int64_t{0}));
  }
  /// Column h of an octet of the lane's row g.
  SYMPOW_DEVICE Lanes<float> entry(int g, int octet, int h) const {
    const Lanes<block::Pair<T>> two = row_pair<d>(rows, first + 8 * g, octet);
    return h == 0 ? block::lower(two) : block::upper(two);
  }
};

}  // namespace sympow::cuda
