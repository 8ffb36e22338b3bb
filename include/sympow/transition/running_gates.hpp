// Channel gates that add up from token to token, on their way into queries and keys.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <numbers>
#include <type_traits>

#include <sympow/core/blocks.hpp>

namespace SYMPOW_NAMESPACE::detail {

/// x ← x + a, then q ← e^x q and k ← e^-x k, for x in [-40 log 2, 0].
///
/// For float 2^n 2^f and 2^-n 2^-f, n whole, with one polynomial for both, what is even in f and what is odd, and a
/// Newton step from the second to the inverse of the first. Errors: 2.5 u, and 2 u from the inverse. Exactly 1 at 0.
/// Not inline, for then compilers learn that the arrays are aligned, which gcc 12 takes for a reason not to use
/// packets.
template <class Scalar, class Real, class Count>
[[gnu::noinline]] void apply_running_gates(Scalar* __restrict q, Scalar* __restrict k, double* __restrict x,
                                           const Real* __restrict a, Count count) {
  if constexpr (std::is_same_v<Scalar, float>) {
    for (Index i = 0; i < count; ++i) {
      x[i] += static_cast<double>(a[i]);
      const double z = x[i] * std::numbers::log2e;
      const auto n = static_cast<std::int32_t>(z - .5);
      const auto f = static_cast<float>(z - n);  // 2^f in [-1/2, 1/2] to 2e-9
      const float s = f * f, even = ((1.546144470e-4F * s + 9.618056679e-3F) * s + .2402265092F) * s,
                  odd = ((1.340042818e-3F * s + 5.550327227e-2F) * s + .6931472067F) * f;
      const std::int32_t exponent = n * (1 << 23);
      const float gate = std::bit_cast<float>(std::bit_cast<std::int32_t>(1 + (even + odd)) + exponent);
      const float near = std::bit_cast<float>(std::bit_cast<std::int32_t>(1 + (even - odd)) - exponent);
      q[i] *= gate;
      k[i] *= near + near * (1 - gate * near);
    }
  } else {
    using Numbers = Eigen::Array<Scalar, block_size<Count>, 1>;
    Eigen::Map<Numbers> total(x, count), query(q, count), key(k, count);
    total += Eigen::Map<const Eigen::Array<Real, block_size<Count>, 1>>(a, count).template cast<Scalar>();
    const Eigen::Array<Scalar, block_size<Count>, 1, 0, std::max(block_size<Count>, 16), 1> gates = total.exp();
    query *= gates;
    key /= gates;
  }
}

}  // namespace SYMPOW_NAMESPACE::detail
