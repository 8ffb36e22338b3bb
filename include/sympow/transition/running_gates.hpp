// Accumulated channel gates, applied to queries and keys.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <numbers>
#include <type_traits>

#include <sympow/simd/blocks.hpp>

namespace SYMPOW_NAMESPACE::detail {

/// Log 2^-40: sums of log gates down to here are divided by, and beyond it segments are split.
inline constexpr double least_divisor_log = -40 * std::numbers::ln2;

/// x ← x + a, then q ← e^x q and k ← e^-x k, for x in [`least_divisor_log`, 0].
///
/// For float: 2^n 2^f and 2^-n 2^-f with integer n. One polynomial serves both, split into its even and odd part in f;
/// a Newton step turns the second into the inverse of the first. Errors: 2.5 u, and 2 u for the inverse; exactly 1 at
/// 0. Not inlined: if gcc 12 sees that the arrays are aligned, it stops vectorizing.
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
      const float inverse = std::bit_cast<float>(std::bit_cast<std::int32_t>(1 + (even - odd)) - exponent);
      q[i] *= gate;
      k[i] *= inverse + inverse * (1 - gate * inverse);
    }
  } else {
    using Entries = Eigen::Array<Scalar, block_size<Count>, 1>;
    Eigen::Map<Entries> total(x, count), query(q, count), key(k, count);
    total += Eigen::Map<const Eigen::Array<Real, block_size<Count>, 1>>(a, count).template cast<Scalar>();
    const Eigen::Array<Scalar, block_size<Count>, 1, 0, std::max(block_size<Count>, 16), 1> gates = total.exp();
    query *= gates;
    key /= gates;
  }
}

}  // namespace SYMPOW_NAMESPACE::detail
