// The exponents of a warp's rows.
#pragma once

#include "../layout/chunks.hpp"
#include "../layout/exponents.hpp"

namespace sympow::cuda {

/// A real number as a sum of floats. Of differences x - y of such numbers, (x.high - y.high) + (x.low - y.low), those
/// near 0 are as exact as a float can be, the others as good.
struct TwoFloats {
  Lanes<float> high, low;
  SYMPOW_DEVICE static TwoFloats of(Lanes<double> x) {
    const Lanes<float> high = block::convert<float>(x);
    const Lanes<float> low = block::convert<float>(x - high);
    return {high, block::where(block::absolute(high) < 3e38f, low, Lanes<float>(0.f))};
  }
};

/// Of the rows 8 g + lane / 4 of a warp, g = 0 … groups - 1: r_i (chunks.hpp), 0 where nothing is seen, and the token
/// from which on they see; -1: the state too.
template <int groups>
struct RowLevels {
  static constexpr std::size_t count = groups;
  double anchor;           ///< R: r of the first row; 0 where that is NaN
  int first_seen;          ///< of the first row
  TwoFloats above[count];  ///< r_i - R
  Lanes<std::int32_t> seen[count];

  /// Rows from token `row` of a chunk on. `state`: L, -∞ without one.
  SYMPOW_DEVICE RowLevels(const TokenArrays& tokens, std::int64_t chunk, int row, Lanes<double> state)
      : RowLevels(tokens.level, tokens.reset, chunk, row, state) {}
  /// In units of row `first` of the chunk.
  SYMPOW_DEVICE RowLevels(const TokenArrays& tokens, std::int64_t chunk, int row, Lanes<double> state, int first)
      : RowLevels(tokens, chunk, row, state) {
    const RowLevels<1> unit(tokens, chunk, first, state);
    SYMPOW_UNROLL
    for (auto& level : above) level = TwoFloats::of(level.high + (level.low + anchor) - unit.anchor);
    anchor = unit.anchor;
    first_seen = unit.first_seen;
  }
  /// m and s of such rows are in global or shared memory, from entry `at` + row on.
  template <class Levels, class Resets, class Place>
  SYMPOW_DEVICE RowLevels(Levels levels, Resets resets, Place at, int row, Lanes<double> state) {
    using namespace block;
    Lanes<double> own[count][1], level[count];
    Lanes<std::int32_t> reset[count][1];
    SYMPOW_UNROLL
    for (std::size_t g = 0; g < count; ++g) {  // all are asked for before one is used
      const Lanes<int> i = lane() / 4 + (row + 8 * static_cast<int>(g));
      load(own[g], levels, i + at);
      load(reset[g], resets, i + at);
    }
    SYMPOW_UNROLL
    for (std::size_t g = 0; g < count; ++g) {
      const Lanes<double> r = where(reset[g][0] < 0, larger(state, own[g][0]), own[g][0]);
      level[g] = where(r == -infinity, Lanes<double>(0.), r);
      seen[g] = reset[g][0];
    }
    const double first = uniform(level[0]);
    anchor = first == first ? first : 0.;  // later rows may not see what is NaN
    first_seen = uniform(seen[0]);
    SYMPOW_UNROLL
    for (int g = 0; g < groups; ++g) above[g] = TwoFloats::of(level[g] - anchor);
  }

  /// 2^{R - r_i}, by which sums of what came before the warp's keys continue; 0 of rows that see nothing of it.
  SYMPOW_DEVICE Lanes<float> carry(int g) const {
    return block::where(seen[g] == first_seen, block::exp2(-above[g].high), Lanes<float>(0.f));
  }
};

}  // namespace sympow::cuda
