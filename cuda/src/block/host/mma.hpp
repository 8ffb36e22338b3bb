// D = A B + C of a tensor core, in bits: how the 16 products and the accumulator are summed; those of floats, in parts.
#pragma once

#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <iterator>

#include "../number.hpp"

namespace sympow::cuda::block::host {

/// How an mma sums its products, which PTX leaves open.
enum class MmaSum {
  hopper,       ///< all terms cut to 25 bits below the largest exponent, summed, cut toward zero to float
  nearest,      ///< the exact products and the accumulator in double, rounded once to nearest
  toward_zero,  ///< the same, cut toward zero
};

/// A number with the exponent of its format: a subnormal one has the smallest. Of 0 it is below, of what is not finite
/// above all others, also in sums of two.
struct Decoded {
  float value = 0;
  int exponent = -zero;

  static constexpr int zero = 10000, not_finite = 30000;
};

/// least: the smallest exponent of the format.
inline Decoded decode(float x, int least) {
  if (x == 0) return {x, -Decoded::zero};
  const int exponent = static_cast<int>(std::bit_cast<std::uint32_t>(x) >> 23 & 0xffu) - 127;
  return {x, exponent == 128 ? Decoded::not_finite : exponent < least ? least : exponent};
}
inline Decoded decode(bf16 x) { return decode(to_float(x), -126); }
inline Decoded decode(fp16 x) { return decode(to_float(x), -14); }

/// Σ a_k b_k + c of 16 products, as Hopper is taken to sum them: no document of the hardware says so, and no chip has
/// confirmed it here. `largest`: the exponent of the largest term, where a product has the sum of its factors'.
inline float hopper_sum(const Decoded* a, const Decoded* b, int stride, float c, int largest) {
  constexpr int kept = 25;  // fractional bits below the largest exponent
  const auto power_of_two = [](int n) { return std::bit_cast<double>(static_cast<std::uint64_t>(1023 + n) << 52); };
  const double unit = power_of_two(kept - largest);
  auto sum = static_cast<std::int64_t>(static_cast<double>(c) * unit);  // cut toward zero, as are all
  for (int k = 0; k < 16; ++k)
    sum += static_cast<std::int64_t>(static_cast<double>(a[k].value) * static_cast<double>(b[k * stride].value) * unit);
  const double exact = static_cast<double>(sum) * power_of_two(largest - kept);
  const double cut = std::bit_cast<double>(std::bit_cast<std::uint64_t>(exact) >> 29 << 29);  // 24 bits
  const auto result = static_cast<float>(cut);  // of a subnormal one fewer bits are left
  return std::isfinite(result) && std::abs(static_cast<double>(result)) > std::abs(cut) ? std::nextafter(result, 0.f)
                                                                                        : result;
}

/// The same by any rule. Infinities and NaN go the way of IEEE.
inline float mma_sum(const Decoded* a, const Decoded* b, int stride, float c, MmaSum how) {
  if (how == MmaSum::hopper) {
    int largest = decode(c, -126).exponent;
    for (int k = 0; k < 16; ++k)
      if (const int exponent = a[k].exponent + b[k * stride].exponent; exponent > largest) largest = exponent;
    if (largest < -Decoded::zero / 2) return 0;
    if (largest < Decoded::zero / 2) return hopper_sum(a, b, stride, c, largest);
  }
  double exact = c;
  for (int k = 0; k < 16; ++k) exact += static_cast<double>(a[k].value) * static_cast<double>(b[k * stride].value);
  const auto nearest = static_cast<float>(exact);
  if (how != MmaSum::toward_zero || !(std::abs(static_cast<double>(nearest)) > std::abs(exact))) return nearest;
  return std::nextafter(nearest, 0.f);
}

/// What tensor cores multiply in the place of a number of T.
template <class T>
inline constexpr std::size_t parts_of = sizeof(T) == 2 ? 1 : 3;
template <class T>
std::array<Decoded, parts_of<T>> decode_parts(T x) {
  if constexpr (sizeof(T) == 2) {
    return {decode(x)};
  } else {
    const auto parts = split(x);
    return {decode(parts[0]), decode(parts[1]), decode(parts[2])};
  }
}
/// A matrix of such numbers, part by part.
template <class T, int rows, int columns>
struct Factor {
  static constexpr int stride = columns;
  Decoded part[parts_of<T>][std::size_t{rows}][std::size_t{columns}];

  void set(int row, int column, T x) {
    const auto parts = decode_parts(x);
    for (std::size_t i = 0; i < parts.size(); ++i) part[i][row][column] = parts[i];
  }
};
/// Σ_k a_ik b_kj + c of 16 products.
template <block::Products products, class T, class Left, class Right>
float mma_sum(const Left& a, int i, const Right& b, int j, float c, MmaSum how) {
  const auto sum = [&](int left, int right, float start) {
    return mma_sum(a.part[left][i], &b.part[right][0][j], Right::stride, start, how);
  };
  if constexpr (sizeof(T) == 2) {
    return sum(0, 0, c);
  } else {
    float of_parts = 0;
    for (std::size_t n = first_product(products); n < std::size(float_products); ++n)
      of_parts = sum(float_products[n].left, float_products[n].right, of_parts);
    return c + of_parts;
  }
}

}  // namespace sympow::cuda::block::host
