// Powers of two by bit manipulation.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <limits>
#include <type_traits>

#include <sympow/core/config.hpp>

namespace SYMPOW_NAMESPACE::detail {

/// The bits of a float or double: fraction first, then exponent.
template <class Scalar>
using Bits = std::conditional_t<sizeof(Scalar) == sizeof(std::uint32_t), std::uint32_t, std::uint64_t>;

template <class Scalar>
inline constexpr int bits_of_fraction = std::numeric_limits<Scalar>::digits - 1;

/// 2^n, which must be a normal number of the type.
template <class Scalar>
[[gnu::always_inline]] inline Scalar normal_power_of_two(int n) {
  return std::bit_cast<Scalar>(static_cast<Bits<Scalar>>(n + std::numeric_limits<Scalar>::max_exponent - 1)
                               << bits_of_fraction<Scalar>);
}

/// 2^n for an integer n, clamped: 0 below the normal numbers of the type, the largest power above.
template <class Scalar>
[[gnu::always_inline]] inline Scalar nearest_power_of_two(double n) {
  using Limits = std::numeric_limits<Scalar>;
  if (!(n > Limits::min_exponent)) return Scalar(0);
  return normal_power_of_two<Scalar>(static_cast<int>(std::min<double>(n, Limits::max_exponent - 1)));
}

/// n with 2^{n-1} ≤ x < 2^n, for a positive normal number x.
template <class Scalar>
[[gnu::always_inline]] inline int exponent_above(Scalar x) {
  return static_cast<int>(std::bit_cast<Bits<Scalar>>(x) >> bits_of_fraction<Scalar>) + 2 -
         std::numeric_limits<Scalar>::max_exponent;
}

}  // namespace SYMPOW_NAMESPACE::detail
