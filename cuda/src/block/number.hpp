// The 16-bit formats of tensor cores, floats beside them, and two such numbers as a pair. Kernels use the types; the
// functions are for the host.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace sympow::cuda::block {

/// bfloat16: the exponents of float, 8 significant bits. u = 2^-8.
struct bf16 {
  std::uint16_t bits;
};

/// IEEE binary16: 5 bits of exponent, 11 significant bits. u = 2^-11; finite up to 65504.
struct fp16 {
  std::uint16_t bits;
};

/// Two numbers of one register: the first in the lower half. Two floats are two registers.
template <class T>
struct Pair {
  std::uint32_t bits;
};
template <>
struct Pair<float> {
  float lower, upper;
};

/// Bits of a significand after the leading one.
template <class T>
inline constexpr int fraction_bits = 0;
template <>
inline constexpr int fraction_bits<bf16> = 7;
template <>
inline constexpr int fraction_bits<fp16> = 10;
template <>
inline constexpr int fraction_bits<float> = 23;

/// The number itself: every 16-bit number is a float.
constexpr float to_float(bf16 x) { return std::bit_cast<float>(static_cast<std::uint32_t>(x.bits) << 16); }
constexpr float to_float(fp16 x) {
  const std::uint32_t sign = (x.bits & 0x8000u) << 16, rest = x.bits & 0x7fffu;
  if (rest >= 0x7c00u) return std::bit_cast<float>(sign | 0x7f800000u | (rest & 0x3ffu) << 13);
  return std::bit_cast<float>(sign | rest << 13) * 0x1p112f;  // the biases of the exponents are 112 apart
}

constexpr float to_float(float x) { return x; }

/// The nearest bf16 or fp16, ties to even; beyond the largest one infinity; NaN is 0x7fff, as cvt.rn has it.
template <class T>
constexpr T round_to(float x);
template <>
constexpr bf16 round_to<bf16>(float x) {
  const auto b = std::bit_cast<std::uint32_t>(x);
  if ((b & 0x7fffffffu) > 0x7f800000u) return {0x7fff};
  return {static_cast<std::uint16_t>((b + 0x7fffu + (b >> 16 & 1u)) >> 16)};
}
template <>
constexpr fp16 round_to<fp16>(float x) {
  const auto b = std::bit_cast<std::uint32_t>(x), size = b & 0x7fffffffu, sign = b >> 16 & 0x8000u;
  if (size > 0x7f800000u) return {0x7fff};
  const float a = std::bit_cast<float>(size);
  if (a >= 65520.f) return {static_cast<std::uint16_t>(sign | 0x7c00u)};
  if (a < 0x1p-14f)  // a multiple of 2^-24: the sum with 2^23 rounds to it
    return {static_cast<std::uint16_t>(sign | (std::bit_cast<std::uint32_t>(a * 0x1p24f + 0x1p23f) & 0x7ffu))};
  return {static_cast<std::uint16_t>(sign | (((size + 0xfffu + (size >> 13 & 1u)) >> 13) - (112u << 10)))};
}
template <>
constexpr float round_to<float>(float x) {
  return x;
}

/// Lower half (h = 0) or upper half (h = 1) of a pair.
template <class T>
constexpr T half(Pair<T> p, int h) {
  return {static_cast<std::uint16_t>(h == 0 ? p.bits & 0xffffu : p.bits >> 16)};
}
template <class T>
constexpr Pair<T> pair_of(T lower, T upper) {
  return {lower.bits | static_cast<std::uint32_t>(upper.bits) << 16};
}
constexpr float half(Pair<float> p, int h) { return h == 0 ? p.lower : p.upper; }
constexpr Pair<float> pair_of(float lower, float upper) { return {lower, upper}; }

/// A float as tensor cores take it: x = x_0 + x_1 + x_2, each the bf16 nearest to what is left, so |x_1| ≤ 2^-8 |x| and
/// |x_2| ≤ 2^-17 |x|. Exact but for 2^-134 where |x| < 2^-110; beyond 0x1.ffp127 it is not finite.
constexpr std::array<bf16, 3> split(float x) {
  const bf16 first = round_to<bf16>(x), second = round_to<bf16>(x - to_float(first));
  return {first, second, round_to<bf16>(x - to_float(first) - to_float(second))};
}

/// A product of floats as six of such parts, the smallest first, or as the last three alone. What is left out is at
/// most (1 + 2^-9) 2^-24 of it, or (1 + 2^-8) 2^-15.
enum class Products { exact, fast };
struct Factors {
  int left, right;
};
inline constexpr Factors float_products[] = {{2, 0}, {0, 2}, {1, 1}, {1, 0}, {0, 1}, {0, 0}};
constexpr std::size_t first_product(Products products) { return products == Products::exact ? 0 : 3; }

}  // namespace sympow::cuda::block
