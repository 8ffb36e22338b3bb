// Exact variance of random features as estimates of the exponential.
#pragma once

#include <algorithm>
#include <cmath>
#include <numbers>

#include <sympow/feature/random_features.hpp>

namespace SYMPOW_NAMESPACE {
namespace detail {

/// A series of terms with given ratios, in units of 2^exponent so that no term overflows.
struct ScaledSeries {
  double term = 1, sum = 0, largest = 0, exponent = 0;

  void add(double factor = 1) {
    sum += term * factor;
    largest = std::max(largest, std::abs(term));
  }
  void next(double ratio) {
    constexpr double step = 512;
    term *= ratio;
    if (std::abs(term) < 0x1p512) return;
    term *= 0x1p-512, sum *= 0x1p-512, largest *= 0x1p-512;
    exponent += step;
  }
  /// Whether the remaining terms are negligible if each is at most half its predecessor.
  [[nodiscard]] bool done() const { return std::abs(term) <= 0x1p-70 * largest; }
  /// e^shift · sum.
  [[nodiscard]] double times_exp(double shift) const {
    return sum == 0 ? 0 : sum * std::exp(shift + exponent * std::numbers::ln2);
  }
};

}  // namespace detail

/// Kummer's confluent hypergeometric function.
///
///     ₁F₁(a; b; z) = Σ_k (a)_k z^k / ((b)_k k!),   (a)_k = a (a + 1) … (a + k - 1)
///
/// Uses the series; for z < 0 Kummer's transformation e^z ₁F₁(b - a; b; -z), which avoids overflow. Cost: about 3 |z| +
/// |a| + 60 terms of 5 operations. Error: about 4u (1 + |z|) Σ |terms|, which is relative to ₁F₁ if all terms have one
/// sign, as for a, b, z > 0. Infinite on overflow. Throws `InvalidArgument` unless |a|, |z| ≤ 1e6 and b > 0. Source:
/// DLMF 13.2.2 and 13.2.39.
[[nodiscard]] inline double confluent_hypergeometric(double a, double b, double z) {
  constexpr double limit = 1e6;
  if (!(std::abs(a) <= limit && std::abs(z) <= limit && b > 0 && std::isfinite(b)))
    detail::raise<InvalidArgument>("confluent_hypergeometric: a = ", a, ", b = ", b, ", z = ", z,
                                   "; |a| and |z| must be at most 1e6 and b positive");
  const double first = z < 0 ? b - a : a, size = std::abs(z);
  detail::ScaledSeries series;
  for (double k = 0;; ++k) {
    series.add();
    const double ratio = (first + k) / (b + k) * (size / (k + 1));
    if (std::abs(ratio) < .5 && k > -first && series.done()) break;
    if (ratio == 0) break;  // a polynomial
    series.next(ratio);
  }
  return series.times_exp(std::min(z, 0.0));
}

namespace detail {

/// Covariance of two rows of an orthogonal block, in units of the squared mean e^t of two independent rows:
///
///     e^{-t} ₁F₁(d; d/2; t/2) - 1 = -Σ_k e^{-t} t^k / k! (1 - c_k),   c_k = Π_{j < k} (d + j) / (d + 2j)
///
/// All terms have one sign, and 1 - c_k accumulates without cancellation. t ≥ 0.
inline double orthogonal_pair_covariance(double d, double t) {
  double c = 1, deficit = 0;  // deficit = 1 - c_k
  ScaledSeries series;
  for (double k = 0; k < 3 || t / k >= .5 || series.term > 0x1p-70 * series.sum; ++k) {
    series.add(deficit);
    deficit += c * k / (d + 2 * k);
    c *= (d + k) / (d + 2 * k);
    series.next(t / (k + 1));
  }
  return -series.times_exp(-t);
}

/// The covariance of cos(w·z), which is bounded: ₁F₁(d; d/2; -t/2) - e^{-t}, t = ‖z‖² ≥ 0.
inline double orthogonal_cosine_covariance(double d, double t) {
  if (t > 1) return confluent_hypergeometric(d, d / 2, -t / 2) - std::exp(-t);
  double term = 1, c = 1, deficit = 0, sum = 0;  // the difference of the series, termwise
  for (double k = 0; k < 30; ++k) {
    sum -= term * deficit;
    deficit += c * k / (d + 2 * k);
    c *= (d + k) / (d + 2 * k);
    term *= -t / (k + 1);
  }
  return sum;
}

}  // namespace detail

/// Exact variance of the estimate φ(x)·φ(y) of SM = exp(xᵀy) with m random projections.
///
///     ρ = ‖x + y‖,   δ = ‖x - y‖
///     positive        e^{-‖x‖²-‖y‖²} (e^{2ρ²} - e^{ρ²}) / m                  = e^{ρ²} SM² (1 - e^{-ρ²}) / m
///     hyperbolic      e^{-‖x‖²-‖y‖²} (e^{ρ²} - 1)² / 2m                      = that · (1 - e^{-ρ²}) / 2
///     trigonometric   e^{‖x‖²+‖y‖²} (1 - e^{-δ²})² / 2m                      = e^{ρ²} SM⁻² (1 - e^{-δ²})² / 2m
///
/// for independent rows. With orthogonal blocks of n_b ≤ d rows, each of the Σ_b n_b (n_b - 1) pairs of rows adds a
/// covariance / m²:
///
///     positive and hyperbolic   e^{-‖x‖²-‖y‖²} (₁F₁(d; d/2; ρ²/2) - e^{ρ²}) ≤ 0
///     trigonometric             e^{‖x‖²+‖y‖²} (₁F₁(d; d/2; -δ²/2) - e^{-δ²})
///
/// since w_1 + w_2 has a uniform direction and E ‖w_1 + w_2‖^{2k} = 2^k (d)_k. Cost: O(d + ρ² + 60). Overflows only if
/// the variance does. Throws `ShapeMismatch` unless x and y are vectors of one length, and `InvalidArgument` unless m ≥
/// 1, x is not empty and ρ², δ² ≤ 1e6. Source: Rethinking Attention with Performers (2021), Lemma 2, for independent
/// rows; the paper only bounds the covariances, which are derived here.
template <VectorExpression X, VectorExpression Y>
[[nodiscard]] double random_feature_variance(RandomFeatureKind kind, const X& x, const Y& y, Index m,
                                             bool orthogonal = true) {
  detail::check_size("length of y", y.size(), x.size(), "length of x");
  if (m < 1) detail::raise<InvalidArgument>("random_feature_variance: m is ", m, ", must be 1 or more");
  if (x.size() < 1) detail::raise<InvalidArgument>("random_feature_variance: x is empty");
  const Vector<double> u = x.template cast<double>(), v = y.template cast<double>();
  const double norms = u.squaredNorm() + v.squaredNorm(), rho2 = (u + v).squaredNorm(), delta2 = (u - v).squaredNorm();
  constexpr double limit = 1e6;
  if (!(rho2 <= limit && delta2 <= limit))
    detail::raise<InvalidArgument>("random_feature_variance: squared lengths of x + y and x - y are ", rho2, " and ",
                                   delta2, ", must be at most 1e6");
  const double d = static_cast<double>(x.size()), count = static_cast<double>(m);
  const double full_blocks = std::floor(count / d), remaining = count - full_blocks * d;
  const double pairs =
      orthogonal ? full_blocks * d * (d - 1) + remaining * (remaining - 1) : 0;  // ordered, within one block
  const auto total = [&](double log_size, double row_variance, double pair_covariance) {
    const double sum = row_variance / count + (pairs > 0 ? pairs / (count * count) * pair_covariance : 0);
    return sum == 0 ? 0 : std::exp(log_size + std::log(std::max(sum, 0.0)));
  };
  if (kind == RandomFeatureKind::trigonometric) {
    const double deficit = -std::expm1(-delta2);
    return total(norms, deficit * deficit / 2, pairs > 0 ? detail::orthogonal_cosine_covariance(d, delta2) : 0);
  }
  // In units of e^{2ρ²} for one row; a pair then has the factor e^{-2ρ²} e^{ρ²}.
  const double deficit = -std::expm1(-rho2),
               pair_covariance = pairs > 0 ? detail::orthogonal_pair_covariance(d, rho2) : 0;
  const double row_variance = kind == RandomFeatureKind::positive ? deficit : deficit * deficit / 2;
  return total(2 * rho2 - norms, row_variance, std::exp(-rho2) * pair_covariance);
}

/// The variance for the projections of a feature map, over all seeds.
template <RandomFeatureKind Kind, VectorExpression X, VectorExpression Y>
[[nodiscard]] double random_feature_variance(const RandomFeatures<Kind>& feature, const X& x, const Y& y) {
  detail::check_size("length of x", x.size(), feature.projections().cols(), "d of the random features");
  return random_feature_variance(Kind, x, y, feature.projections().rows(), feature.options().orthogonal);
}

}  // namespace SYMPOW_NAMESPACE
