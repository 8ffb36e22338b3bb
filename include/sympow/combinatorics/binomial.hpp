// Binomial coefficients and dimensions, exact; overflow throws.
#pragma once

#include <initializer_list>
#include <numeric>
#include <span>

#include <sympow/core/checks.hpp>

namespace SYMPOW_NAMESPACE {

/// Binomial coefficient, the number of k-element subsets of n elements.
///
///     C(n, k) = n! / (k! (n - k)!),   0 for k > n
///
/// Exact. Cost: min(k, n - k) multiplications and gcds. Throws `InvalidArgument` for a negative argument and
/// `DimensionOverflow` if the value does not fit `Index`.
[[nodiscard]] constexpr Index binomial(Index n, Index k) {
  if (n < 0 || k < 0) detail::raise<InvalidArgument>("binomial: n = ", n, " and k = ", k, " must not be negative");
  if (k > n) return 0;
  k = k < n - k ? k : n - k;
  Index value = 1;  // C(n - k + i, i) after step i
  for (Index i = 1; i <= k; ++i) {
    const Index common = std::gcd(value, i);  // reduce first, so that a step overflows only if its result does
    if (__builtin_mul_overflow(value / common, (n - k + i) / (i / common), &value))
      detail::raise<DimensionOverflow>("binomial: C(", n, ", ", k, ") does not fit the index type");
  }
  return value;
}

/// Multinomial coefficient, the number of arrangements of a multiset with the given counts.
///
///     (c_1 + … + c_d)! / (c_1! … c_d!)
///
/// Exact. Throws as `binomial` does.
[[nodiscard]] constexpr Index multinomial(std::span<const Index> counts) {
  Index total = 0, value = 1;
  for (const Index count : counts) {
    if (count < 0) detail::raise<InvalidArgument>("multinomial: count ", count, " must not be negative");
    if (__builtin_add_overflow(total, count, &total))
      detail::raise<DimensionOverflow>("multinomial: the total of the counts does not fit the index type");
    if (__builtin_mul_overflow(value, binomial(total, count), &value))
      detail::raise<DimensionOverflow>("multinomial: the value for a total of ", total, " does not fit the index type");
  }
  return value;
}

/// The multinomial coefficient of a list: `multinomial({2, 1})` is 3.
[[nodiscard]] constexpr Index multinomial(std::initializer_list<Index> counts) {
  return multinomial(std::span<const Index>(counts.begin(), counts.size()));
}

/// n! for 0 ≤ n ≤ 20. Throws as `binomial` does.
[[nodiscard]] constexpr Index factorial(Index n) {
  if (n < 0) detail::raise<InvalidArgument>("factorial: n = ", n, " must not be negative");
  Index value = 1;
  for (Index i = 2; i <= n; ++i)
    if (__builtin_mul_overflow(value, i, &value))
      detail::raise<DimensionOverflow>("factorial: ", n, "! does not fit the index type");
  return value;
}

/// Length of φ^p(x), the dimension of the symmetric tensors of order p over R^d.
///
///     D = C(d + p - 1, p)
///
/// Throws as `binomial` does, and `InvalidPower` for p < 1. Source: Symmetric Power Transformers, §4.1, "Dimension".
[[nodiscard]] constexpr Index symmetric_dimension(Index d, int p) {
  if (p < 1) detail::raise<InvalidPower>("symmetric_dimension: p = ", p, " must be at least 1");
  if (d < 0) detail::raise<InvalidArgument>("symmetric_dimension: d = ", d, " must not be negative");
  Index n = 0;
  if (__builtin_add_overflow(d, p - 1, &n))
    detail::raise<DimensionOverflow>("symmetric_dimension: C(", d, " + ", p - 1, ", ", p,
                                     ") does not fit the index type");
  return binomial(n, p);
}

/// Length of φ_TP^p(x) = flat(x ⊗ … ⊗ x).
///
///     d^p
///
/// Throws as `symmetric_dimension` does. Source: Symmetric Power Transformers, §3.2.
[[nodiscard]] constexpr Index tensor_dimension(Index d, int p) {
  if (p < 1) detail::raise<InvalidPower>("tensor_dimension: p = ", p, " must be at least 1");
  if (d < 0) detail::raise<InvalidArgument>("tensor_dimension: d = ", d, " must not be negative");
  Index value = 1;
  for (int i = 0; i < p; ++i)
    if (__builtin_mul_overflow(value, d, &value))
      detail::raise<DimensionOverflow>("tensor_dimension: ", d, "^", p, " does not fit the index type");
  return value;
}

}  // namespace SYMPOW_NAMESPACE
