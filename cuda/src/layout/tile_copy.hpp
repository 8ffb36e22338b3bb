// Tiles of rows from global to shared memory, asynchronously, and back.
#pragma once

#include "swizzle.hpp"

namespace sympow::cuda {

/// What a warp of `warps` copies of tiles of `rows` rows of `width` 16-bit entries: 16 bytes a lane, always the same
/// octet of rows `step` apart, so that all but the first address of a tile is an addition.
template <int width, int rows, int warps>
struct TileCopy {
  static constexpr int octets = width / 8, step = 32 * warps / octets, count = (rows + step - 1) / step;
  static_assert(32 * warps % octets == 0 && (rows % step == 0 || count == 1));

  Lanes<int> row, octet, to;  // of the first copy: its row and octet, and where it goes in octet_place
  SYMPOW_DEVICE explicit TileCopy(int warp) {
    const Lanes<int> i = block::lane() + warp * 32;
    row = i / octets;
    octet = i % octets;
    to = octet_place<width>(row, octet);
  }

  /// The entry of the lane's first copy, of rows `distance` entries apart from entry `at` on.
  SYMPOW_DEVICE Lanes<std::int64_t> source(std::int64_t at, std::int64_t distance) const {
    return row * distance + (octet * 8 + at);
  }

  /// Brings a tile to entry `place`, a multiple of 8 rows: rows first … end - 1 of it, of octets that exist, and else
  /// 0.
  template <class T, class U>
  SYMPOW_DEVICE void bring(block::Shared<T> memory, int place, Global<U> from, Lanes<std::int64_t> first_source,
                           std::int64_t distance, int first, int end, Lanes<bool> exists) const {
    SYMPOW_UNROLL
    for (int n = 0; n < count; ++n) {
      const Lanes<bool> there = exists && row + n * step >= first && row + n * step < end;
      block::cp_async<16>(memory, to + (n * step * width + place), from, first_source + n * step * distance,
                          block::where(there, 16, 0), row + n * step < rows);
    }
  }
};

/// A warp stores a tile of `rows` × 64 entries, in octet_place<64> from row `first` on: those of its rows and columns
/// that are left, to rows `distance` apart from entry `at` on.
template <int rows, class T>
SYMPOW_DEVICE void store_tile(Global<T> to, std::int64_t at, std::int64_t distance, block::Shared<T> from, int first,
                              int rows_left, int columns_left) {
  using namespace block;
  SYMPOW_UNROLL
  for (int n = 0; n < rows / 4; ++n) {
    const Lanes<int> row = lane() / 8 + 4 * n, octet = lane() % 8;
    Lanes<T> eight[8];
    load(eight, from, octet_place<64>(row + first, octet));
    store(to, row * distance + (octet * 8 + at), eight, row < rows_left && octet * 8 < columns_left);
  }
}

}  // namespace sympow::cuda
