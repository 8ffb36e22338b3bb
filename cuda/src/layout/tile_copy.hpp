// Tiles of rows from global to shared memory, asynchronously, and back.
#pragma once

#include "swizzle.hpp"

namespace sympow::cuda {

/// Entries of 16 bytes.
template <class T>
inline constexpr int entries_at_once = 16 / static_cast<int>(sizeof(T));

/// What a warp of `warps` copies of tiles of `rows` rows of `width` entries: 16 bytes a lane, always the same columns
/// of rows `step` apart, so that all but the first address of a tile is an addition.
template <class T, int width, int rows, int warps>
struct TileCopy {
  static constexpr int pieces = width / entries_at_once<T>, step = 32 * warps / pieces,
                       count = (rows + step - 1) / step;
  static_assert(32 * warps % pieces == 0 && (rows % step == 0 || count == 1));

  Lanes<int> row, column, to;  // of the first copy: where it begins in the tile, and in octet_place
  SYMPOW_DEVICE explicit TileCopy(int warp) {
    const Lanes<int> i = block::lane() + warp * 32;
    row = i / pieces;
    column = i % pieces * entries_at_once<T>;
    to = octet_place<width>(row, column / 8) + column % 8;
  }

  /// The entry of the lane's first copy, of rows `distance` entries apart from entry `at` on.
  SYMPOW_DEVICE Lanes<std::int64_t> source(std::int64_t at, std::int64_t distance) const {
    return row * distance + (column + at);
  }

  /// Brings a tile to entry `place`, a multiple of 8 rows: rows first … end - 1 of it, of columns that exist, and else
  /// 0.
  template <class U>
  SYMPOW_DEVICE void bring(block::Shared<T> memory, int place, Global<U> from, Lanes<std::int64_t> first_source,
                           std::int64_t distance, int first, int end, Lanes<bool> exists) const {
    SYMPOW_UNROLL_BY(sizeof(T) == 2 ? count : 1)
    for (int n = 0; n < count; ++n) {
      const Lanes<bool> there = exists && row + n * step >= first && row + n * step < end;
      block::cp_async<16>(memory, to + (n * step * width + place), from, first_source + n * step * distance,
                          block::where(there, 16, 0), row + n * step < rows);
    }
  }
};

/// A warp stores a tile of `rows` × `width` entries, in octet_place<width> from row `first` on: those of its rows and
/// columns that are left, to rows `distance` apart from entry `at` on.
template <int rows, int width = 64, class T>
SYMPOW_DEVICE void store_tile(Global<T> to, std::int64_t at, std::int64_t distance, block::Shared<T> from, int first,
                              int rows_left, int columns_left) {
  using namespace block;
  constexpr int count = entries_at_once<T>, pieces = width / count, rows_at_once = 32 / pieces;
  const Lanes<int> column = lane() % pieces * count;
  SYMPOW_UNROLL
  for (int n = 0; n < rows / rows_at_once; ++n) {
    const Lanes<int> row = lane() / pieces + rows_at_once * n;
    Lanes<T> entries[std::size_t{count}];
    load(entries, from, octet_place<width>(row + first, column / 8) + column % 8);
    store(to, row * distance + (column + at), entries, row < rows_left && column < columns_left);
  }
}

}  // namespace sympow::cuda
