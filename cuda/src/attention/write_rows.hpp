// Rows of attention from their sums, to global memory.
#pragma once

#include "../layout/tile_copy.hpp"
#include "warp_rows.hpp"

namespace sympow::cuda {

/// Where the rows of a warp are: from row `first` of a chunk of `length` tokens, at token `begin`, on.
struct RowPlaces {
  int b, head, tile;
  std::int64_t begin;
  int first, length;
};

/// Normalises or scales the rows of a warp, and stores them with their condition and factors as the arguments of
/// Attention say. `mass`: of the state's part, relative to the first row; gates(row): G of a row of the chunk. Through
/// shared memory, in the place of queries from row `staged` of 64 on, they become rows of 16 bytes.
template <int P, std::size_t tiles, std::size_t octets, int groups, class T, class Args, class Gates>
SYMPOW_DEVICE void write_rows(const Args& x, const RowPlaces& at, const Lanes<float> (&sum)[tiles][octets][4],
                              const RowLevels<groups>& levels, const QueryNorms<groups>& norms, Lanes<float> mass,
                              block::Shared<T> queries, int staged, const Gates& gates) {
  using namespace block;
  using Two = Pair<T>;
  constexpr int columns = 8 * (static_cast<int>(octets) - 1);
  SYMPOW_UNROLL
  for (int g = 0; g < groups; ++g) {
    const int t = g / 2, r = g % 2 * 2;
    const Lanes<int> row = lane() / 4 + (at.first + 8 * g);
    Lanes<float> normaliser = sum[t][columns / 8][r] + sum[t][columns / 8][r + 1];  // terms, in lanes 0, 1 of four
    normaliser = shuffle(normaliser, lane() / 4 * 4) + shuffle(normaliser, lane() / 4 * 4 + 1);
    const Lanes<float> carry = levels.carry(g);
    const Lanes<float> read = where(carry > 0.f, norm_to<P>(norms.square[g]) * mass * carry, Lanes<float>(0.f));
    const Lanes<bool> degenerate = x.normalised && !(normaliser > read * x.noise) && normaliser == normaliser;
    Lanes<float> factor, again = 1.f;
    if (x.normalised) {
      factor = where(degenerate, Lanes<float>(0.f), 1.f / normaliser);
    } else {
      const Lanes<double> sum_of_gates = gates(row);
      const Lanes<double> level = levels.above[g].high + (levels.above[g].low + levels.anchor);
      factor = again = two_to(smaller((sum_of_gates + level + norms.exponent[g] * P + x.scale_exponent) * .5, 127.));
      factor *= x.scale_sign;
    }
    SYMPOW_UNROLL
    for (int n = 0; n < columns / 8; ++n) {
      const auto y = [&](int h) { return where(degenerate, Lanes<float>(0.f), sum[t][n][r + h] * factor * again); };
      const Lanes<Two> two[1] = {pack<T>(y(0), y(1))};
      store(queries.template as<Two>(), octet_place<columns>(lane() / 4 + (staged + 8 * g), n) / 2 + lane() % 4, two);
    }
    const Lanes<bool> tells = lane() % 4 == 0 && row < at.length;
    const auto tell = [&](const Rows<float>& to, const Lanes<float>(&value)[1]) {
      if (to.data.data && at.tile == 0) store(to.data, to.at(at.b, row + at.begin, at.head), value, tells);
    };
    tell(x.condition, {where(degenerate, static_cast<float>(infinity), read / absolute(normaliser))});
    tell(x.factors, {factor});
  }
  warp_barrier();
  store_tile<8 * groups>(x.rows.data, x.rows.at(at.b, at.begin + at.first, at.head) + at.tile * columns, x.rows.token,
                         queries, staged, at.length - at.first, x.e - at.tile * columns);
}

}  // namespace sympow::cuda
