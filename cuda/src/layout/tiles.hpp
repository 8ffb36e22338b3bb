// Products of a warp with tiles of shared memory.
#pragma once

#include "swizzle.hpp"

namespace sympow::cuda {

/// Right factors of 16 rows × 16 n columns, rows of `columns` entries in octet_place from row `row` on.
template <int columns, class T, std::size_t n>
SYMPOW_DEVICE void load_right(Lanes<block::Pair<T>> (&right)[n][4], block::Shared<T> memory, int row) {
  using namespace block;
  SYMPOW_UNROLL
  for (int i = 0; i < static_cast<int>(n); ++i)
    ldmatrix<true>(right[i], memory, octet_place<columns>(lane() % 16 + row, lane() / 16 + 2 * i));
}

/// sum += left · right, 16 × 16 n columns.
template <class T, std::size_t n, std::size_t tiles>
SYMPOW_DEVICE void multiply_right(Lanes<float> (&sum)[tiles][4], const Lanes<block::Pair<T>> (&left)[4],
                                  const Lanes<block::Pair<T>> (&right)[n][4]) {
  SYMPOW_UNROLL
  for (int i = 0; i < static_cast<int>(n); ++i) {
    const Lanes<block::Pair<T>> even[2] = {right[i][0], right[i][1]}, odd[2] = {right[i][2], right[i][3]};
    block::mma(sum[2 * i], left, even);
    block::mma(sum[2 * i + 1], left, odd);
  }
}

/// A right factor of 16 rows whose first column is 1, the others 0: with it a product sums the left factor's rows.
template <class T>
struct Ones {
  Lanes<block::Pair<T>> right[2];
  SYMPOW_DEVICE Ones() {
    using namespace block;
    right[0] = right[1] = pack<T>(where(lane() / 4 == 0, 1.f, 0.f), where(lane() / 4 == 0, 1.f, 0.f));
  }
};

}  // namespace sympow::cuda
