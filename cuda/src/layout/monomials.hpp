// Monomials of degree P of d channels, i_1 ≤ … ≤ i_P, in lexicographic order, that of the library's states.
#pragma once

#include "../block/block.hpp"

namespace sympow::cuda {

/// D = C(d + P - 1, P), for the small d and P of the kernels.
SYMPOW_HOST_DEVICE constexpr int monomial_count(int P, int d) {
  int count = 1;
  for (int i = 1; i <= P; ++i) count = count * (d - 1 + i) / i;
  return count;
}

/// The place of (i, j), i ≤ j, among pairs of d channels. I and J are int, or Lanes<int>.
template <class I, class J>
SYMPOW_HOST_DEVICE constexpr auto pair_place(int d, I i, J j) {
  return i * (d - 1) - i * (i - 1) / 2 + j;
}

}  // namespace sympow::cuda
