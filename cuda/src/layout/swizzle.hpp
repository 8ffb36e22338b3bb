// Rows in shared memory, octets exchanged so that ldmatrix meets every bank once.
#pragma once

#include "../block/block.hpp"

namespace sympow::cuda {

/// The entry where octet o of a row begins, in rows of `width` entries next to each other: eight neighbouring rows have
/// an octet of 16-bit numbers of one index in eight different groups of banks, four an octet of floats where width is
/// 64 or more, else two. Rows and octets are int, or Lanes<int>.
template <int width, class Row, class Octet>
SYMPOW_DEVICE auto octet_place(Row row, Octet octet) {
  static_assert(width == 16 || width == 32 || width % 64 == 0);
  constexpr int exchanged = width < 64 ? width / 8 : 8, lines = width == 16 ? 2 : width == 32 ? 1 : 0;
  return row * width + (octet ^ ((row >> lines) & (exchanged - 1))) * 8;
}

}  // namespace sympow::cuda
