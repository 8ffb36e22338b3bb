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

/// How many monomials of degree P in the channels `from` … d - 1 come before the first that begins with `channel`.
/// d is int, or Lanes<int>.
template <class I>
SYMPOW_DEVICE block::Lanes<int> count_before(int P, I d, block::Lanes<int> from, block::Lanes<int> channel) {
  return monomial_count(P, d - from) - monomial_count(P, d - channel);
}

/// The first channel of the m-th monomial of degree P in the channels `from` … d - 1; d ≤ `most`, a power of 2.
/// log2 `most` steps. d is int, or Lanes<int>.
template <int most, class I>
SYMPOW_DEVICE block::Lanes<int> first_channel(int P, I d, block::Lanes<int> m, block::Lanes<int> from) {
  using block::Lanes;
  const Lanes<int> all = monomial_count(P, d - from);
  Lanes<int> channel = from;
  SYMPOW_UNROLL
  for (int step = most / 2; step > 0; step /= 2) {
    const Lanes<int> next = channel + step;
    channel = block::where(next < d && all - monomial_count(P, d - next) <= m, next, channel);
  }
  return channel;
}

/// The channels i_1 ≤ … ≤ i_P of a monomial.
template <int P>
struct Monomial {
  block::Lanes<int> channel[std::size_t{P}];

  /// The m-th of d channels, d ≤ `most`. Of m beyond the last one, the last one.
  template <int most>
  SYMPOW_DEVICE static Monomial at(int d, block::Lanes<int> m) {
    using block::Lanes;
    const int last = monomial_count(P, d) - 1;
    m = block::where(m < last, m, Lanes<int>(last));
    Monomial result;
    Lanes<int> from = 0;
    SYMPOW_UNROLL
    for (int p = 0; p < P - 1; ++p) {
      const Lanes<int> channel = first_channel<most>(P - p, d, m, from);
      m = m - count_before(P - p, d, from, channel);
      result.channel[p] = from = channel;
    }
    result.channel[P - 1] = from + m;
    return result;
  }

  /// P! / Π r!, r how often each channel comes. Exact.
  SYMPOW_DEVICE block::Lanes<float> coefficient() const {
    block::Lanes<float> orders = 1.f, repeated = 1.f, run = 1.f;
    SYMPOW_UNROLL
    for (int p = 1; p < P; ++p) {
      run = block::where(channel[p] == channel[p - 1], run + 1.f, block::Lanes<float>(1.f));
      repeated *= run;
      orders *= static_cast<float>(p + 1);
    }
    return orders / repeated;
  }

  /// Its place among those of d channels.
  SYMPOW_DEVICE block::Lanes<int> place(int d) const {
    block::Lanes<int> before = 0, from = 0;
    SYMPOW_UNROLL
    for (int p = 0; p < P; ++p) {
      before = before + count_before(P - p, d, from, channel[p]);
      from = channel[p];
    }
    return before;
  }
};

/// The largest power and number of channels of the kernels.
inline constexpr int largest_power = 4, most_channels = 128;

/// The place of r c among the monomials of degree P of d channels, r the one at place `rest` of degree P - 1.
SYMPOW_DEVICE block::Lanes<int> place_with(int P, int d, block::Lanes<int> rest, int c) {
  using block::Lanes;
  Lanes<int> before = 0, last = 0, of_rest = 0;  // the factor before, and that of r
  Lanes<bool> enters = false, is_in = false;     // c
  SYMPOW_UNROLL
  for (int left = largest_power - 1; left > 0; --left) {  // factors of r that are left
    if (left >= P) continue;
    const Lanes<int> channel = first_channel<most_channels>(left, d, rest, of_rest);
    rest = rest - count_before(left, d, of_rest, channel);
    of_rest = channel;
    enters = channel >= c && !is_in;
    before = before + block::where(enters, count_before(left + 1, d, last, Lanes<int>(c)), 0);
    last = block::where(enters, c, last);
    is_in = is_in || enters;
    before =
        before + block::where(is_in, count_before(left, d, last, channel), count_before(left + 1, d, last, channel));
    last = channel;
  }
  return before + block::where(is_in, 0, c - last);
}

/// The multinomial coefficient P! / ∏ n_i! of monomial m in lexicographic order, n_i how often channel i is in it;
/// exact.
SYMPOW_DEVICE block::Lanes<float> multinomial(int P, int d, block::Lanes<int> m) {
  using block::Lanes;
  Lanes<int> from = 0, run = 0;  // the channel of the factor before, and how often it has come
  Lanes<float> coefficient = 1.f;
  SYMPOW_UNROLL
  for (int left = largest_power; left > 0; --left) {  // factors that are left
    if (left > P) continue;
    const Lanes<int> channel = first_channel<most_channels>(left, d, m, from);
    m = m - count_before(left, d, from, channel);
    run = block::where(channel == from, run + 1, 1);
    from = channel;
    coefficient *= static_cast<float>(P + 1 - left);
    coefficient = coefficient / block::convert<float>(run);
  }
  return coefficient;
}

}  // namespace sympow::cuda
