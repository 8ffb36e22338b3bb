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

/// sum += left · right, 16 × 16 n columns, from column 16 `first` of the sum on.
template <block::Products products, class T, std::size_t n, std::size_t tiles>
SYMPOW_DEVICE void multiply_right(Lanes<float> (&sum)[tiles][4], const Lanes<block::Pair<T>> (&left)[4],
                                  const Lanes<block::Pair<T>> (&right)[n][4], std::size_t first = 0) {
  SYMPOW_UNROLL
  for (std::size_t i = 0; i < n; ++i) {
    const Lanes<block::Pair<T>> even[2] = {right[i][0], right[i][1]}, odd[2] = {right[i][2], right[i][3]};
    block::mma<products>(sum[2 * (first + i)], left, even);
    block::mma<products>(sum[2 * (first + i) + 1], left, odd);
  }
}

/// Sixteen octets 1, 0, …, 0, `apart` entries from one to the next (group_mma): as the right factor of a product they
/// sum the left factor's rows. Warp 0 writes them.
template <int apart = 8, class T>
SYMPOW_DEVICE void write_ones(block::Shared<T> octets, int warp) {
  using namespace block;
  const Lanes<Pair<T>> first = pack<T>(where(lane() % 2 == 0, 1.f, 0.f), Lanes<float>(0.f)),
                       two[2] = {first, Pair<T>{}};
  const Lanes<int> row = lane() / 2, place = apart == 8 ? row * 4 : row * 32 + row % 8 * 4;
  if (warp == 0) store(octets.template as<Pair<T>>(), place + lane() % 2 * 2, two);
}

}  // namespace sympow::cuda
