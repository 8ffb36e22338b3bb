// Rows of 16-bit numbers in shared memory, octets exchanged so that ldmatrix meets every bank once.
#pragma once

#include "../block/block.hpp"

namespace sympow::cuda {

/// The entry where octet o of a row begins, in rows of `width` entries next to each other: eight neighbouring rows have
/// an octet of one index in eight different groups of banks. Rows and octets are int, or Lanes<int>.
template <int width, class Row, class Octet>
SYMPOW_DEVICE auto octet_place(Row row, Octet octet) {
  static_assert(width % 8 == 0 && (width >= 64 ? width % 64 == 0 : 64 % width == 0));
  constexpr int exchanged = width < 64 ? width / 8 : 8, rows_of_line = width < 64 ? 64 / width : 1;
  return row * width + (octet ^ (row / rows_of_line % exchanged)) * 8;
}

}  // namespace sympow::cuda
