// Rotation frequencies of the pairs of coordinates.
#pragma once

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>

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

/// RoPE of a context `factor` times as long, by a larger base: the last pair turns `factor` times slower, the first one
/// as before.
///
///     θ_i = (base · factor^{d/(d-2)})^{-2(i-1)/d}
///
/// Throws `OddDimension`, `InvalidArgument`, also for d = 2. Source: "NTK-aware" scaling; the linear one is θ / factor.
template <class Scalar>
[[nodiscard]] Vector<Scalar> ntk_frequencies(Index d, double base, double factor) {
  detail::check_positive("factor", factor);
  if (d == 2) detail::raise<InvalidArgument>("frequencies: d = 2 has one pair, whose base does not matter");
  const auto n = static_cast<double>(d);
  return rope_frequencies<Scalar>(d, detail::check_positive("base", base) * std::pow(factor, n / (n - 2)));
}

/// RoPE of a context `factor` times as long as the original one of L tokens, by YaRN: pairs with more than `fast` turns
/// in L tokens stay, those with fewer than `slow` turn `factor` times slower, those between them in part:
///
///     θ'_i = θ_i ((1 - r_i) + r_i / factor),   r_i = clamp((i - 1 - low) / (high - low), 0, 1)
///     low = ⌊n(fast)⌋,  high = ⌈n(slow)⌉,      n(turns) = d ln(L / (2π turns)) / (2 ln base)
///
/// Multiply the scale of logits by `yarn_scale(factor)`. Throws `OddDimension`, `InvalidArgument`. Source: YaRN (2023),
/// §3.2, with the whole numbers low and high of the checkpoints in use.
template <class Scalar>
[[nodiscard]] Vector<Scalar> yarn_frequencies(Index d, double base, double factor, double L, double fast = 32,
                                              double slow = 1) {
  for (const auto& [name, x] : {std::pair{"factor", factor}, {"L", L}, {"fast", fast}, {"slow", slow}})
    detail::check_positive(name, x);
  Vector<double> theta = rope_frequencies<double>(d, base);
  const auto pair_of = [&](double turns) {
    return static_cast<double>(d) * std::log(L / (2 * std::numbers::pi * turns)) / (2 * std::log(base));
  };
  const double low = std::max(std::floor(pair_of(fast)), 0.),
               high = std::min(std::ceil(pair_of(slow)), static_cast<double>(d) - 1);
  for (Index i = 0; i < theta.size(); ++i) {
    const double r = std::clamp((static_cast<double>(i) - low) / std::max(high - low, .001), 0., 1.);
    theta[i] *= (1 - r) + r / factor;
  }
  return theta.template cast<Scalar>();
}
/// What YaRN multiplies logits by: (0.1 ln factor + 1)² for factor > 1. Source: YaRN (2023), §3.4.
[[nodiscard]] inline double yarn_scale(double factor) {
  const double of_each = factor > 1 ? .1 * std::log(factor) + 1 : 1;
  return of_each * of_each;
}

}  // namespace SYMPOW_NAMESPACE
