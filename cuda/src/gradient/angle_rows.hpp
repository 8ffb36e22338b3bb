// Rotary in gradients: the rows of a warp turn back, and what flows through angles.
#pragma once

#include "pair_tiles.hpp"

namespace sympow::cuda {

/// The pairs of channels that turn, of sums of 16 rows of d channels: a lane has d/8 of them in each of its two rows,
/// two in a couple of octets: those 2 o and 2 o + 1, or of halves o and o + d/16.
template <int d>
struct Couples {
  static constexpr int count = d / 16;
  bool halves;

  SYMPOW_DEVICE int octet(int o, int second) const { return halves ? o + second * count : 2 * o + second; }
  /// Which one of the d/2 pairs is pair p of the lane; couple o has 2 o and 2 o + 1.
  SYMPOW_DEVICE Lanes<int> pair(int p) const {
    return halves ? block::lane() % 4 * 2 + (p / 2 * 8 + p % 2) : block::lane() % 4 + 4 * p;
  }
  /// Of a couple of octets and its pair h, the lane's entries in row g: f(first, second).
  template <class Octets, class F>
  SYMPOW_DEVICE void entries(Octets& two, int h, int g, const F& f) const {
    if (halves)
      f(two[0][2 * g + h], two[1][2 * g + h]);
    else
      f(two[h][2 * g], two[h][2 * g + 1]);
  }
};

/// path_i of token i of the block's chunk; 0 before the sequence. i = -1 is the token before the chunk.
SYMPOW_DEVICE Lanes<double> path_of(const Rotary& rotary, const TokenBlock& of, int head, Lanes<int> i) {
  Lanes<double> path[1] = {0.};
  load(path, rotary.paths.data, rotary.paths.at(of.b, i + of.begin, head), i >= 0 || of.chunk > 0);
  return path[0];
}

/// Sums of a warp's rows turn back by the angles of their tokens: rows 8 g + lane / 4 are tokens `first` … of the
/// block's chunk, those beyond its end like the last.
template <int d>
SYMPOW_DEVICE void turn_back(const OctetSums<d>& sums, const Rotary& rotary, const TokenBlock& of, int head,
                             int first) {
  using namespace block;
  const Couples<d> couples{rotary.halves};
  const std::int64_t row = (std::int64_t{of.b} * rotary.key_heads + head) * (d / 2);
  Lanes<double> path[2];
  SYMPOW_UNROLL
  for (int g = 0; g < 2; ++g)
    path[g] = path_of(rotary, of, head, smaller(lane() / 4 + (first + 8 * g), Lanes<int>(of.length - 1)));
  SYMPOW_ROLL
  for (int o = 0; o < couples.count; ++o) {
    Lanes<float> two[2][4];
    sums.take(two[0], couples.octet(o, 0));
    sums.take(two[1], couples.octet(o, 1));
    SYMPOW_UNROLL
    for (int h = 0; h < 2; ++h) {
      const Lanes<std::int64_t> j = couples.pair(2 * o + h) + std::int64_t{0};
      const Lanes<double> rate = load_one(rotary.rates, j), begin = load_one(rotary.begin, j + row);
      SYMPOW_UNROLL
      for (int g = 0; g < 2; ++g) {
        const Turn by = turn_of(turns_after(begin, path[g], rate));
        couples.entries(two, h, g, [&](Lanes<float>& one, Lanes<float>& other) {
          const Lanes<float> before = one;
          one = by.cosine * before + by.sine * other;
          other = by.cosine * other - by.sine * before;
        });
      }
    }
    sums.put(couples.octet(o, 0), two[0]);
    sums.put(couples.octet(o, 1), two[1]);
  }
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

/// Flows through angles of a warp's 16 rows x̂ in shared memory: ⟨s, J_u x̂⟩ of sums s in registers. Their couples go
/// through shared memory, some at once, so that loops over them are not unrolled.
template <class T, int d>
struct AngleRows {
  static constexpr int most = sizeof(T) == 2 ? 4 : 2;  // beside rows of floats there is room for less
  static constexpr int count = Couples<d>::count, held = count < most ? count : most;
  static constexpr int entries = 64, bytes = 4 * (8 * entries + 64 * 16 * held);  // of `of_rates`; of four warps
  Global<const double> rates;
  Couples<d> couples;
  OctetSums<16 * held> passing;
  block::Shared<T> rows;
  int first;                       // of the warp
  block::Shared<double> of_rates;  // of this warp: by pairs, what comes back to rates

  /// `memory` of so many bytes.
  SYMPOW_DEVICE AngleRows(const Rotary& rotary, block::Shared<T> own_rows, int own, block::Shared<double> memory, int w)
      : rates(rotary.rates),
        couples{rotary.halves},
        passing(memory.after(4 * entries).template as<float>(), w),
        rows(own_rows),
        first(own),
        of_rates(memory.after(w * entries)) {}
  /// Before anything is added.
  SYMPOW_DEVICE void clear() const {
    const Lanes<double> zero[2] = {0., 0.};
    block::store(of_rates, block::lane() * 2, zero);
    block::warp_barrier();
  }
  /// Of sums in units of their rows 8 g + lane / 4: Σ_u rates_u ⟨s, J_u x̂⟩ of each, and adds these flows to what comes
  /// back to rates, times how far their angles go on.
  SYMPOW_DEVICE void add(Lanes<double> (&total)[2], const Lanes<float> (&sum)[std::size_t{d / 8}][4],
                         const Lanes<double> (&unit)[2], const Lanes<double> (&path)[2]) const {
    using namespace block;
    Lanes<float> all[2] = {0.f, 0.f};
    SYMPOW_UNROLL
    for (int from = 0; from < count; from += held) {
      SYMPOW_UNROLL
      for (int n = 0; n < held; ++n) {
        if (couples.halves) {
          passing.put(2 * n, sum[from + n]);
          passing.put(2 * n + 1, sum[from + n + count]);
        } else {
          passing.put(2 * n, sum[2 * (from + n)]);
          passing.put(2 * n + 1, sum[2 * (from + n) + 1]);
        }
      }
      SYMPOW_ROLL
      for (int n = 0; n < held; ++n) {
        Lanes<float> two[2][4];
        passing.take(two[0], 2 * n);
        passing.take(two[1], 2 * n + 1);
        each_flow(from + n, two, [&](int p, const Lanes<float>(&flow)[2]) {
          const Lanes<float> rate = rate_of(p);
          SYMPOW_UNROLL
          for (int g = 0; g < 2; ++g) all[g] += rate * flow[g];
          add_rate(p, coupling_of(flow[0], unit[0]) * path[0] + coupling_of(flow[1], unit[1]) * path[1]);
        });
      }
    }
    SYMPOW_UNROLL
    for (int g = 0; g < 2; ++g) total[g] = coupling_of(sum_of_row(all[g]), unit[g]);
  }
  /// Adds Σ_ij C_ij dx_ij ⟨k̂_j, J_u x̂_i⟩ of a tile of C_ij dx_ij, which is rounded to T, and its 64 keys.
  template <block::Products products>
  SYMPOW_DEVICE void add_pairs(PairTile& tile, block::Shared<T> keys, const Lanes<double> (&unit)[2]) const {
    using namespace block;
    SYMPOW_ROLL
    for (int o = 0; o < d / 16; ++o) {
      Lanes<float> sum[2][4];
      SYMPOW_UNROLL
      for (int r = 0; r < 4; ++r) sum[0][r] = sum[1][r] = 0.f;
      each_step<T>(tile, [&](int step, const Lanes<Pair<T>>(&left)[4]) {
        Lanes<Pair<T>> factor[1][4];
        ldmatrix<true>(
            factor[0], keys,
            octet_place<d>(lane() % 16 + 16 * step, where(lane() < 16, couples.octet(o, 0), couples.octet(o, 1))));
        multiply_right<products>(sum, left, factor);
      });
      each_flow(o, sum, [&](int p, const Lanes<float>(&flow)[2]) {
        add_rate(p, coupling_of(flow[0], unit[0]) + coupling_of(flow[1], unit[1]));
      });
    }
  }
  /// In the place of the rows 2^-t Σ_u rates_u J_u x̂, rounded to T, 2^t > max |rates|: returns t.
  SYMPOW_DEVICE Lanes<int> turn_rows() const {
    using namespace block;
    Lanes<float> largest = 0.f;
    SYMPOW_ROLL
    for (int p = 0; p < d / 8; ++p) largest = larger(largest, absolute(rate_of(p)));
    largest = larger(largest, shuffle_xor(largest, 1));
    largest = larger(largest, shuffle_xor(largest, 2));
    const Lanes<int> t = exponent_above(largest);
    const Lanes<float> shrink = two_to(-t);
    const auto place = [&](int g, int n) { return octet_place<d>(lane() / 4 + (first + 8 * g), n) / 2 + lane() % 4; };
    const auto memory = rows.template as<Pair<T>>();
    warp_barrier();
    SYMPOW_ROLL
    for (int o = 0; o < d / 16; ++o) {
      const Lanes<float> a = rate_of(2 * o) * shrink, b = rate_of(2 * o + 1) * shrink;
      SYMPOW_UNROLL
      for (int g = 0; g < 2; ++g) {
        const Lanes<int> one_at = place(g, couples.octet(o, 0)), other_at = place(g, couples.octet(o, 1));
        const Lanes<Pair<T>> one = load_one(memory, one_at), other = load_one(memory, other_at);
        Lanes<Pair<T>> turned[2][1];
        if (couples.halves) {
          turned[0][0] = pack<T>(-a * lower(other), -b * upper(other));
          turned[1][0] = pack<T>(a * lower(one), b * upper(one));
        } else {
          turned[0][0] = pack<T>(-a * upper(one), a * lower(one));
          turned[1][0] = pack<T>(-b * upper(other), b * lower(other));
        }
        store(memory, one_at, turned[0]);
        store(memory, other_at, turned[1]);
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
      for (int v = 0; v < 4; ++v) all[0] += load_one(of_rates, lane() % (d / 2) + (from + v * entries));
      store(to, Lanes<std::int64_t>(lane() + (at + from)), all, lane() + from < d / 2);
    }
  }

 private:
  /// each(p, ⟨s, J_u x̂⟩ of the two rows) of sums of a couple of octets.
  template <class F>
  SYMPOW_DEVICE void each_flow(int o, const Lanes<float> (&sum)[2][4], const F& each) const {
    using namespace block;
    Lanes<float> flow[2][2];
    SYMPOW_UNROLL
    for (int g = 0; g < 2; ++g) {
      const auto pair = [&](int n) { return row_pair<d>(rows, first + 8 * g, couples.octet(o, n)); };
      const Lanes<Pair<T>> x[2] = {pair(0), pair(1)};
      SYMPOW_UNROLL
      for (int h = 0; h < 2; ++h) {
        const Lanes<float> a = couples.halves ? (h == 0 ? lower(x[0]) : upper(x[0])) : lower(x[h]),
                           b = couples.halves ? (h == 0 ? lower(x[1]) : upper(x[1])) : upper(x[h]);
        couples.entries(sum, h, g, [&](const Lanes<float>& s, const Lanes<float>& t) { flow[h][g] = t * a - s * b; });
      }
    }
    each(2 * o, flow[0]);
    each(2 * o + 1, flow[1]);
  }
  /// Adds to what comes back to the rate of pair p a lane's part of it.
  SYMPOW_DEVICE void add_rate(int p, Lanes<double> part) const {
    using namespace block;
    Lanes<double> one[1] = {0.};
    load(one, of_rates, couples.pair(p), lane() < 4);
    one[0] += sum_of_column(part);
    store(of_rates, couples.pair(p), one, lane() < 4);
  }
  SYMPOW_DEVICE Lanes<float> rate_of(int p) const {
    return block::convert<float>(load_one(rates, couples.pair(p) + std::int64_t{0}));
  }
};

}  // namespace sympow::cuda
