// Rotation frequencies of the pairs of coordinates.
#pragma once

#include <cmath>
#include <numbers>

#include <sympow/core/checks.hpp>
#include <sympow/core/concepts.hpp>

namespace SYMPOW_NAMESPACE {
namespace detail {

template <class Scalar, class Rate>
Vector<Scalar> frequencies(Index d, Rate&& rate) {
  if (d < 0 || d % 2 != 0) raise<OddDimension>("frequencies: d = ", d, " must be even, coordinates turn in pairs");
  return Vector<Scalar>::NullaryExpr(
      d / 2, [&](Index i) { return static_cast<Scalar>(rate(2 * static_cast<double>(i) / static_cast<double>(d))); });
}

inline double check_positive(const char* name, double value) {
  if (!(value > 0)) raise<InvalidArgument>("frequencies: ", name, " = ", value, " must be positive");
  return value;
}

}  // namespace detail

/// Rotary frequencies of the sympow papers.
///
///     θ_i = 2π / N^{2(i-1)/d},  i = 1 … d/2,   in (2π/N, 2π];  radians per token
///
/// N: largest document size. Since θ_1 = 2π, the first pair stays fixed at one step per token. Throws `OddDimension`,
/// `InvalidArgument`. Source: Improving Symmetric Power Transformers, §1.1 (Conformal Transformations, §3.2, omits the
/// exponent).
template <class Scalar>
[[nodiscard]] Vector<Scalar> rotary_frequencies(Index d, double largest_document) {
  detail::check_positive("N", largest_document);
  return detail::frequencies<Scalar>(
      d, [=](double exponent) { return 2 * std::numbers::pi / std::pow(largest_document, exponent); });
}

/// Rotary frequencies of RoPE.
///
///     θ_i = base^{-2(i-1)/d},  i = 1 … d/2;  radians per token
///
/// Throws `OddDimension`, `InvalidArgument`. Source: RoFormer (2021), eq. (15), with the indexing of common
/// implementations.
template <class Scalar>
[[nodiscard]] Vector<Scalar> rope_frequencies(Index d, double base = 10000) {
  detail::check_positive("base", base);
  return detail::frequencies<Scalar>(d, [=](double exponent) { return std::pow(base, -exponent); });
}

}  // namespace SYMPOW_NAMESPACE
