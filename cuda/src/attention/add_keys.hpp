// Keys of a chunk in the rows of a warp.
#pragma once

#include "warp_rows.hpp"

namespace sympow::cuda {

/// sum += Σ_j (q̂·k̂_j)^P 2^{u_j - R} v_j over as many keys as the warp has rows: keys `key` … of the chunk, rows
/// `part` … of `keys`, from row `from` of `values` on; u and 2^-x from entry `of_keys` on. The warp's own keys are
/// weighed pair by pair, and before them sums become those of each row; later keys weigh 0, and their scores are not
/// made if that is said: the group's warps multiply together.
template <int P, block::Products products, bool skips_later = false, class T, int groups, class Tiles,
          std::size_t tiles>
SYMPOW_DEVICE void add_keys(Lanes<float> (&sum)[tiles][9][4], const Tiles& query_tiles, const RowLevels<groups>& levels,
                            int first_row, int key, block::Shared<T> keys, int part, block::Shared<double> exponents,
                            block::Shared<float> inverses, int of_keys, block::Shared<T> values, int from,
                            block::Shared<T> ones) {
  using namespace block;
  constexpr int rows_of_warp = 8 * groups;
  const bool is_later = key > first_row, is_skipped = skips_later && is_later;
  Lanes<float> score[tiles][std::size_t{rows_of_warp / 8}][4];
  each(score, [](Lanes<float>& s, int) { s = 0.f; });
  if (!is_skipped) query_tiles.add_scores(score, keys, part);
  Lanes<double> u[1] = {0.};
  Lanes<float> inverse[1] = {0.f};
  load(u, exponents, lane() + of_keys, lane() < rows_of_warp);
  load(inverse, inverses, lane() + of_keys, lane() < rows_of_warp);
  group_finish<T>(sum);
  if (key <= levels.first_seen && levels.first_seen < key + rows_of_warp) {  // what came before may be NaN
    each(sum, [](Lanes<float>& s, int) { s = 0.f; });
    hide_columns(score, levels.first_seen - key);
  }
  if (key == first_row) {
    each(sum,
         [&](Lanes<float>& s, int g) { s = where(levels.carry(g) > 0.f, s * levels.carry(g), Lanes<float>(0.f)); });
    weigh_pairs<P>(score, levels, key, TwoFloats::of(u[0] - levels.anchor), inverse[0]);
  } else if (!is_skipped) {
    const Lanes<float> weight = exp2(convert<float>((u[0] - levels.anchor) * (1. / P)));
    weigh_columns<P>(score, where(lane() + key >= levels.first_seen, inverse[0] * weight, Lanes<float>(0.f)));
  }
  Lanes<Pair<T>> weights[std::size_t{rows_of_warp / 16}][tiles][4];
  left_factors(weights, score, is_later);
  SYMPOW_UNROLL
  for (int step = 0; step < rows_of_warp / 16; ++step)
    group_mma<products>(sum, weights[step], values, from + step * 16, ones, 0);
  group_commit<T>();
}

}  // namespace sympow::cuda
