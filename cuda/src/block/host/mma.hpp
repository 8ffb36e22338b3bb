// D = A B + C of a tensor core, in bits: how the 16 products and the accumulator are summed; those of floats, in parts.
#pragma once

#include <algorithm>
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

/// A finite number as (-1)^s · significand · 2^(exponent - fraction): its exponent is that of its format, so that a
/// subnormal number has the smallest one and no leading bit.
struct Decoded {
  std::int64_t significand = 0;  // signed
  int exponent = 0;
  float value = 0;
};

/// fraction: bits after the point of the format; least: its smallest exponent.
inline Decoded decode(float x, int fraction, int least) {
  if (x == 0 || !std::isfinite(x)) return {0, 0, x};
  const int exponent = std::max(std::ilogb(x), least);
  return {static_cast<std::int64_t>(std::ldexp(x, fraction - exponent)), exponent, x};
}
inline Decoded decode(bf16 x) { return decode(to_float(x), 7, -126); }
inline Decoded decode(fp16 x) { return decode(to_float(x), 10, -14); }

/// Σ a_k b_k + c of 16 products, as Hopper is taken to sum them: no document of the hardware says so, and no chip has
/// confirmed it here. A product has the sum of its factors' exponents, normalised or not.
inline float hopper_sum(const Decoded* a, const Decoded* b, int stride, float c, int fraction) {
  constexpr int kept = 25;  // fractional bits below the largest exponent
  const Decoded start = decode(c, 23, -126);
  int largest = start.significand != 0 ? start.exponent : -10000;
  for (int k = 0; k < 16; ++k)
    if (a[k].significand != 0 && b[k * stride].significand != 0)
      largest = std::max(largest, a[k].exponent + b[k * stride].exponent);
  // Shifts of the magnitude cut toward zero.
  const auto aligned = [&](std::int64_t significand, int exponent, int bits) -> std::int64_t {
    const std::int64_t size = std::abs(significand) << kept >> std::min(62, largest - exponent + bits);
    return significand < 0 ? -size : size;
  };
  std::int64_t sum = start.significand == 0 ? 0 : aligned(start.significand, start.exponent, 23);
  for (int k = 0; k < 16; ++k) {
    const std::int64_t product = a[k].significand * b[k * stride].significand;
    if (product != 0) sum += aligned(product, a[k].exponent + b[k * stride].exponent, 2 * fraction);
  }
  if (sum == 0) return 0;
  auto size = static_cast<std::uint64_t>(std::abs(sum));
  int exponent = largest - kept;
  const int excess = std::max({static_cast<int>(std::bit_width(size)) - 24, -149 - exponent, 0});
  size >>= std::min(excess, 63);
  exponent += excess;
  const float result = std::ldexp(static_cast<float>(size), exponent);
  return sum < 0 ? -result : result;
}

/// The same by any rule. Infinities and NaN go the way of IEEE.
inline float mma_sum(const Decoded* a, const Decoded* b, int stride, float c, int fraction, MmaSum how) {
  double exact = c;
  for (int k = 0; k < 16; ++k) exact += static_cast<double>(a[k].value) * static_cast<double>(b[k * stride].value);
  if (how == MmaSum::hopper && std::isfinite(exact)) return hopper_sum(a, b, stride, c, fraction);
  const auto nearest = static_cast<float>(exact);
  if (how == MmaSum::nearest || !(std::abs(static_cast<double>(nearest)) > std::abs(exact))) return nearest;
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
  const auto sum = [&](int left, int right, float start, int fraction) {
    return mma_sum(a.part[left][i], &b.part[right][0][j], Right::stride, start, fraction, how);
  };
  if constexpr (sizeof(T) == 2) {
    return sum(0, 0, c, fraction_bits<T>);
  } else {
    float of_parts = 0;
    for (std::size_t n = first_product(products); n < std::size(float_products); ++n)
      of_parts = sum(float_products[n].left, float_products[n].right, of_parts, fraction_bits<bf16>);
    return c + of_parts;
  }
}

}  // namespace sympow::cuda::block::host
