// Monomials of degree P of d channels, i_1 ≤ … ≤ i_P, in lexicographic order, that of the library's states.
#pragma once

#include "../block/block.hpp"

namespace sympow::cuda {

/// D = C(d + P - 1, P), for the small d and P ≤ 4 of the kernels. I is int, or Lanes<int>.
template <class I>
SYMPOW_HOST_DEVICE constexpr auto monomial_count(int P, I d) {
  return P == 1   ? d
         : P == 2 ? d * (d + 1) / 2
         : P == 3 ? d * (d + 1) * (d + 2) / 6
                  : d * (d + 1) / 2 * (d + 2) / 3 * (d + 3) / 4;
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

/// The largest power of the kernels.
inline constexpr int largest_power = 4;

/// The multinomial coefficient P! / ∏ n_i! of monomial m in lexicographic order, n_i how often channel i is in it; exact.
/// (P - 1) d steps.
SYMPOW_DEVICE block::Lanes<float> multinomial(int P, int d, block::Lanes<int> m) {
  block::Lanes<int> channel = 0,
                    run = 0;  // the next factor is this channel or a later one; how often it was the channel
  block::Lanes<float> coefficient = 1.f;
  const auto factor = [&](int place, block::Lanes<int> its_channel) {  // the coefficient of `place` factors
    run = block::where(its_channel == channel, run + 1, 1);
    channel = its_channel;
    coefficient *= static_cast<float>(place);
    coefficient = coefficient / block::convert<float>(run);
  };
  SYMPOW_UNROLL
  for (int after = largest_power - 1; after > 0; --after) {  // factors after this one
    if (after >= P) continue;
    block::Lanes<int> its_channel = channel;
    for (int i = 0; i < d; ++i) {
      const int count = monomial_count(after, d - i);  // of those with channel i in this place
      const auto later = its_channel == i && m >= count;
      m = block::where(later, m - count, m);
      its_channel = block::where(later, i + 1, its_channel);
    }
    factor(P - after, its_channel);
  }
  factor(P, channel + m);
  return coefficient;
}

}  // namespace sympow::cuda
