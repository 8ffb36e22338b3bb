// Matrices of floats on the device: ordinary loads, and products of their bf16 parts (number.hpp).
#pragma once

#include "warp_instructions.hpp"

namespace sympow::cuda::block {

/// As that of 16 bits: the lane that names a row tells it those that load of it. Of two rows, half of the lanes load
/// the second one first: so each time the rows lie in different banks, exchanged as octet_place has them.
template <bool Transposed, std::size_t N>
SYMPOW_DEVICE void ldmatrix(Pair<float> (&r)[N], Shared<float> memory, int i) {
  static_assert(N == 1 || N == 2 || N == 4);
#pragma unroll
  for (int m = 0; m < static_cast<int>(N); ++m) {
    if constexpr (Transposed) {
      const int row = 8 * m + lane() % 4 * 2, second = lane() / 2 % 2;
      float near[1], far[1];
      load(near, memory, shuffle(i, row + second) + lane() / 4);
      load(far, memory, shuffle(i, row + 1 - second) + lane() / 4);
      r[m] = second == 0 ? Pair<float>{near[0], far[0]} : Pair<float>{far[0], near[0]};
    } else {
      float two[2];
      load(two, memory, shuffle(i, 8 * m + lane() / 4) + lane() % 4 * 2);
      r[m] = {two[0], two[1]};
    }
  }
}

namespace detail {

/// The parts of N pairs of floats. Differences are never merged with the products that they may come from.
template <std::size_t N>
struct Parts {
  Pair<bf16> part[3][N];
  SYMPOW_DEVICE explicit Parts(const Pair<float> (&x)[N]) {
#pragma unroll
    for (std::size_t n = 0; n < N; ++n) {
      float low = x[n].lower, high = x[n].upper;
#pragma unroll
      for (int i = 0; i < 3; ++i) {
        part[i][n] = pack<bf16>(low, high);
        low = __fsub_rn(low, lower(part[i][n]));
        high = __fsub_rn(high, upper(part[i][n]));
      }
    }
  }
};

/// The products from the n-th on.
template <std::size_t n>
SYMPOW_DEVICE void add_products(float (&sum)[4], const Parts<4>& a, const Parts<2>& b) {
  if constexpr (n < sizeof float_products / sizeof(Factors)) {
    constexpr Factors factors = float_products[n];
    mma(sum, a.part[factors.left], b.part[factors.right]);
    add_products<n + 1>(sum, a, b);
  }
}

}  // namespace detail

template <Products products = Products::exact>
SYMPOW_DEVICE void mma(float (&c)[4], const Pair<float> (&a)[4], const Pair<float> (&b)[2]) {
  float sum[4] = {0.f, 0.f, 0.f, 0.f};
  detail::add_products<products == Products::exact ? 0 : 3>(sum, detail::Parts<4>(a), detail::Parts<2>(b));
#pragma unroll
  for (int r = 0; r < 4; ++r) c[r] += sum[r];
}

/// As that of 16 bits, but that sums are there at once. Of two rows, half of the lanes load the second one first, too.
template <Products products = Products::exact, int octets_apart = 8, std::size_t tiles>
SYMPOW_DEVICE void group_mma(float (&sum)[tiles][9][4], const Pair<float> (&left)[tiles][4], Shared<float> rows,
                             int row, Shared<float> octets, int octet) {
  const int second = lane() / 2 % 2, k[2] = {lane() % 4 * 2 + second, lane() % 4 * 2 + 1 - second};
#pragma unroll
  for (int n = 0; n < 9; ++n) {
    Pair<float> right[2];
#pragma unroll
    for (int m = 0; m < 2; ++m) {
      float entry[2][1];
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        if (n < 8)
          load(entry[h], rows, (((row + k[h]) * 64 + k[h] * 8 + lane() / 4) ^ (n * 8)) + m * 512);
        else
          load(entry[h], octets,
               (octet + k[h] + 8 * m) * octets_apart + (octets_apart == 64 ? k[h] * 8 : 0) + lane() / 4);
      }
      right[m] = second == 0 ? Pair<float>{entry[0][0], entry[1][0]} : Pair<float>{entry[1][0], entry[0][0]};
    }
#pragma unroll
    for (std::size_t t = 0; t < tiles; ++t) mma<products>(sum[t][n], left[t], right);
  }
}

}  // namespace sympow::cuda::block
