// The m-th monomial: its channels and multinomial coefficient.
#pragma once

#include <cstddef>

#include "../layout/monomials.hpp"

namespace sympow::cuda {

/// x_{i_1} … x_{i_P}, i_1 ≤ … ≤ i_P, m-th in lexicographic order, and in how many orders its factors can be written.
template <int P, int d>
struct Monomial {
  Lanes<int> channel[std::size_t{P}];

  SYMPOW_DEVICE explicit Monomial(Lanes<int> m) { find<P>(m, Lanes<int>(0)); }

  /// P! / Π r!, r how often each channel comes. Exact.
  SYMPOW_DEVICE Lanes<float> coefficient() const {
    Lanes<float> orders = 1.f, repeated = 1.f, run = 1.f;
    SYMPOW_UNROLL
    for (int l = 1; l < P; ++l) {
      run = block::where(channel[l] == channel[l - 1], run + 1.f, Lanes<float>(1.f));
      repeated *= run;
      orders *= static_cast<float>(l + 1);
    }
    return orders / repeated;
  }

 private:
  template <int left>
  SYMPOW_DEVICE void find(Lanes<int> m, Lanes<int> from) {
    if constexpr (left == 1) {
      channel[P - 1] = m + from;
    } else {
      const auto first = first_channel<left, d>(m, from);
      channel[P - left] = first.channel;
      find<left - 1>(m - first.before, first.channel);
    }
  }
};

}  // namespace sympow::cuda
