// Monomials of degree P of d channels, i_1 ≤ … ≤ i_P, in lexicographic order, that of the library's states.
#pragma once

#include "../block/block.hpp"

namespace sympow::cuda {

/// D = C(d + P - 1, P), for the small d and P ≤ 4 of the kernels. I is int, or Lanes<int>.
template <class I>
SYMPOW_HOST_DEVICE constexpr auto monomial_count(int P, I d) {
  return P == 1 ? d : P == 2 ? d * (d + 1) / 2 : P == 3 ? d * (d + 1) * (d + 2) / 6 : d * (d + 1) / 2 * (d + 2) / 3 * (d + 3) / 4;
}

/// The place of (i, j), i ≤ j, among the pairs of d channels. I and J are int, or Lanes<int>.
template <class I, class J>
SYMPOW_HOST_DEVICE constexpr auto pair_place(int d, I i, J j) {
  return i * (d - 1) - i * (i - 1) / 2 + j;
}

/// Of monomials of degree P in the channels `from` … d - 1: the first channel of the m-th, and how many come before the first that begins with it.
struct FirstChannel {
  block::Lanes<int> channel, before;
};
template <int P, int d>
SYMPOW_DEVICE FirstChannel first_channel(block::Lanes<int> m, block::Lanes<int> from) {
  using block::Lanes;
  const Lanes<int> all = monomial_count(P, from * -1 + d);
  Lanes<int> channel = from;
  SYMPOW_UNROLL
  for (int step = d / 2; step > 0; step /= 2) {
    const Lanes<int> next = channel + step;
    channel = block::where(next < d && all - monomial_count(P, next * -1 + d) <= m, next, channel);
  }
  return {channel, all - monomial_count(P, channel * -1 + d)};
}

}  // namespace sympow::cuda
