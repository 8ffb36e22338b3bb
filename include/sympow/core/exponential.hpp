// e^x entry by entry, with an exact 0.
#pragma once

#include <bit>
#include <cstdint>
#include <numbers>
#include <type_traits>

#include <sympow/core/concepts.hpp>

namespace sympow::detail {

/// y ← e^x of doubles by packets, exactly 0 where that is below e^-708: packets end at e^-709 instead. y may be an operand of x.
template <class X, class Y>
void set_exponential(Y&& y, const X& x) {
  constexpr double least = 3.308e-308;  // a little above e^-708
  y = x.exp();
  for (Index i = 0; i < y.size(); ++i)
    if (y[i] < least) y[i] = 0;
}

/// y ← e^x and inverse ← e^-x of doubles in [-40 log 2, 0], rounded to the scalar type.
///
/// For float 2^n 2^f and 2^-n 2^-f, n whole, with one polynomial for both: what is even in f and what is odd. Error: 2 u. Exactly 1 at 0. Not
/// inline, for then compilers learn that the arrays are aligned, which gcc 12 takes for a reason not to use packets.
template <class Scalar, class Count>
[[gnu::noinline]] void set_moderate_exponentials(Scalar* __restrict y, Scalar* __restrict inverse,
                                                 const double* __restrict x, Count count) {
  if constexpr (std::is_same_v<Scalar, float>) {
    for (Index i = 0; i < count; ++i) {
      const double z = x[i] * std::numbers::log2e;
      const auto n = static_cast<std::int32_t>(z - .5);
      const auto f = static_cast<float>(z - n);  // near 2^f in [-1/2, 1/2] to 2e-9
      const float s = f * f, even = ((1.546144470e-4F * s + 9.618056679e-3F) * s + .2402265092F) * s + 1,
                  odd = ((1.340042818e-3F * s + 5.550327227e-2F) * s + .6931472067F) * f;
      const std::int32_t exponent = n * (1 << 23);
      y[i] = std::bit_cast<float>(std::bit_cast<std::int32_t>(even + odd) + exponent);
      inverse[i] = std::bit_cast<float>(std::bit_cast<std::int32_t>(even - odd) - exponent);
    }
  } else {
    Eigen::Map<Eigen::Array<Scalar, Dynamic, 1>> gates(y, count);
    gates = Eigen::Map<const Eigen::Array<Scalar, Dynamic, 1>>(x, count).exp();
    Eigen::Map<Eigen::Array<Scalar, Dynamic, 1>>(inverse, count) = gates.inverse();
  }
}

}  // namespace sympow::detail
