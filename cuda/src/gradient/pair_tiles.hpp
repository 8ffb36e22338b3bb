// Tiles of pairs, as both halves of the backward pass make them: 16 rows of a warp, 64 columns.
#pragma once

#include "../attention/row_levels.hpp"
#include "../attention/warp_rows.hpp"
#include "../layout/gradients.hpp"
#include "../layout/tile_copy.hpp"
#include "../layout/tiles.hpp"

namespace sympow::cuda {

/// A step of a walk that takes each whole by so many parts, counted: a division is twenty instructions.
struct Step {
  int parts, whole = 0, part = 0;
  [[nodiscard]] SYMPOW_DEVICE bool is_last() const { return part + 1 == parts; }
  [[nodiscard]] SYMPOW_DEVICE Step next() const {
    return {parts, is_last() ? whole + 1 : whole, is_last() ? 0 : part + 1};
  }
};

/// A tile, float: row 8 g + lane / 4, column 8 n + lane % 4 · 2 + h is [0][n][2 g + h].
using PairTile = Lanes<float>[1][8][4];

/// Channels of values and of dY in a tile: of floats half as many, so that a block has room for them.
template <class T>
inline constexpr int tile_channels = sizeof(T) == 2 ? 64 : 32;

/// The exponents of 64 columns relative to those of rows, of each lane two columns.
struct ColumnExponents {
  TwoFloats own[2];

  /// Columns from entry `first` of a ring on.
  SYMPOW_DEVICE ColumnExponents(block::Shared<double> ring, int first, double anchor) {
    SYMPOW_UNROLL
    for (int h = 0; h < 2; ++h) {
      Lanes<double> exponent[1];
      block::load(exponent, ring, block::lane() + (first + 32 * h));
      own[h] = TwoFloats::of(exponent[0] - anchor);
    }
  }
  /// Columns lane + 32 h.
  SYMPOW_DEVICE explicit ColumnExponents(const Lanes<double> (&exponent)[2])
      : own{TwoFloats::of(exponent[0]), TwoFloats::of(exponent[1])} {}
  /// Of the lane's column h of octet n.
  SYMPOW_DEVICE TwoFloats of(int n, int h) const {
    const Lanes<int> column = block::lane() % 4 * 2 + (n % 4 * 8 + h);
    return {block::shuffle(own[n / 4].high, column), block::shuffle(own[n / 4].low, column)};
  }
};

/// 2^{column - row}
SYMPOW_DEVICE Lanes<float> weight_of(const TwoFloats& column, const TwoFloats& row) {
  return block::exp2((column.high - row.high) + (column.low - row.low));
}

/// tile = 0
SYMPOW_DEVICE void clear(PairTile& tile) {
  each(tile, [](Lanes<float>& s, int) { s = 0.f; });
}

/// f(step, left factors) of 16 columns of a tile each, rounded to T. Of floats in a loop that is not unrolled, whose
/// factors are always the first ones: the tile goes round once.
template <class T, class F>
SYMPOW_DEVICE void each_step(PairTile& tile, const F& f) {
  if constexpr (sizeof(T) == 2) {
    Lanes<block::Pair<T>> left[4][1][4];
    left_factors(left, tile, false);
    SYMPOW_UNROLL
    for (int step = 0; step < 4; ++step) f(step, left[step][0]);
  } else {
    SYMPOW_ROLL
    for (int step = 0; step < 4; ++step) {
      const auto pair = [&](int r) { return block::pack<T>(tile[0][r / 2][r % 2 * 2], tile[0][r / 2][r % 2 * 2 + 1]); };
      const Lanes<block::Pair<T>> left[4] = {pair(0), pair(1), pair(2), pair(3)};
      f(step, left);
      go_round(tile[0]);
    }
  }
}

/// sum += tile · right, the tile rounded to T, 64 rows of `columns` entries on the right.
template <block::Products products, int columns, class T>
SYMPOW_DEVICE void add_product(Lanes<float> (&sum)[std::size_t{columns / 8}][4], PairTile& tile,
                               block::Shared<T> right) {
  using namespace block;
  each_step<T>(tile, [&](int step, const Lanes<Pair<T>>(&left)[4]) {
    SYMPOW_UNROLL
    for (int n = 0; n < columns / 16; ++n) {
      Lanes<Pair<T>> factor[1][4];
      ldmatrix<true>(factor[0], right, octet_place<columns>(lane() % 16 + 16 * step, lane() / 16 + 2 * n));
      multiply_right<products>(sum, left, factor, static_cast<std::size_t>(n));
    }
  });
}

/// The sum of a value over the four lanes of a row.
template <class X>
SYMPOW_DEVICE Lanes<X> sum_of_row(Lanes<X> x) {
  x += block::shuffle_xor(x, 1);
  return x + block::shuffle_xor(x, 2);
}

/// The sum of a value over the eight rows of lanes.
SYMPOW_DEVICE Lanes<double> sum_of_column(Lanes<double> x) {
  SYMPOW_UNROLL
  for (int mask = 4; mask < 32; mask *= 2) x += block::shuffle_xor(x, mask);
  return x;
}

/// Sums of a warp's 16 rows of d channels in shared memory, 64 d bytes a warp: one octet of channels after the other,
/// of each the four of a lane as in PairTile, which no other lane reads. Not there: sums stay in registers.
template <int d, bool are_there = true>
struct OctetSums {
  static constexpr int octets = d / 8;
  block::Shared<float> memory;  // of this warp

  SYMPOW_DEVICE OctetSums(block::Shared<float> of_warps, int w) : memory(of_warps.after(w * d * 16)) {}
  SYMPOW_DEVICE void put(int octet, const Lanes<float> (&four)[4]) const { store(memory, place(octet), four); }
  SYMPOW_DEVICE void take(Lanes<float> (&four)[4], int octet) const { load(four, memory, place(octet)); }
  SYMPOW_DEVICE void put(const Lanes<float> (&sum)[std::size_t{d / 8}][4]) const {
    SYMPOW_UNROLL
    for (int n = 0; n < octets && are_there; ++n) put(n, sum[n]);
  }
  SYMPOW_DEVICE void take(Lanes<float> (&sum)[std::size_t{d / 8}][4]) const {
    SYMPOW_UNROLL
    for (int n = 0; n < octets && are_there; ++n) take(sum[n], n);
  }

 private:
  SYMPOW_DEVICE static Lanes<int> place(int octet) { return block::lane() * 4 + octet * 128; }
};

/// Of an octet of rows 8 g + lane / 4 from `first` on, in octet_place: the lane's two columns.
template <int d, class T>
SYMPOW_DEVICE Lanes<block::Pair<T>> row_pair(block::Shared<T> rows, int first, int octet) {
  using namespace block;
  return load_one(rows.template as<Pair<T>>(), octet_place<d>(lane() / 4 + first, octet) / 2 + lane() % 4);
}

/// A sum of couplings in its unit, in double; 0 where none are there, whatever the unit.
SYMPOW_DEVICE Lanes<double> coupling_of(Lanes<float> sum, Lanes<double> unit) {
  return block::where(sum == 0.f, Lanes<double>(0.), block::convert<double>(sum) * unit);
}

/// Sums of a warp's 16 rows of `columns` entries, times 2^exponent of each row, stored as T: those rows and columns
/// that are left. `staging`: rows of shared memory that only this warp uses, from `first` on, in octet_place<columns>.
template <int columns, class T>
SYMPOW_DEVICE void store_sums(Rows<T> to, std::int64_t at, const Lanes<float> (&sum)[std::size_t{columns / 8}][4],
                              const Lanes<float> (&factor)[2], const Lanes<double> (&exponent)[2],
                              block::Shared<T> staging, int first, int rows_left, int columns_left) {
  using namespace block;
  warp_barrier();
  SYMPOW_UNROLL
  for (int g = 0; g < 2; ++g) {
    const Lanes<float> half = two_to(smaller(exponent[g] * .5, Lanes<double>(127.)));
    SYMPOW_UNROLL
    for (int n = 0; n < columns / 8; ++n) {
      const auto entry = [&](int h) { return sum[n][2 * g + h] * factor[g] * half * half; };
      const Lanes<Pair<T>> two[1] = {pack<T>(entry(0), entry(1))};
      store(staging.template as<Pair<T>>(), octet_place<columns>(lane() / 4 + (first + 8 * g), n) / 2 + lane() % 4,
            two);
    }
  }
  warp_barrier();
  store_tile<16, columns>(to.data, at, to.token, staging, first, rows_left, columns_left);
}

}  // namespace sympow::cuda
