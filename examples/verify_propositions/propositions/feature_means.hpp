// Means over random projections, by quadrature and by samples: what random features are held against.
#pragma once

#include <cmath>
#include <numbers>

#include <sympow/feature/random_features.hpp>
#include <sympow/verify/proposition.hpp>
#include "propositions/dense.hpp"

namespace SYMPOW_NAMESPACE::verify::detail {

/// What rounding makes of integrals and of exact variances, which are taken in double whatever the scalar.
inline constexpr double rounding_of_quadrature = 1024 * unit_roundoff<double>;

/// ∫ f by the trapezoidal rule, whose error is of rounding for analytic functions that vanish at both ends.
template <class Function>
[[nodiscard]] double integral(double low, double high, const Function& f) {
  constexpr double step = 1. / 16;
  double sum = 0;
  for (double t = low; t <= high; t += step) sum += f(t);
  return step * sum;
}

/// E f(t), t ~ N(0, size²).
template <class Function>
[[nodiscard]] double gauss_mean(double size, const Function& f) {
  return integral(-16, 16, [&](double t) { return std::exp(-t * t / 2) * f(size * t); }) /
         std::sqrt(2 * std::numbers::pi);
}

/// E f(a), a ~ χ_n: the length of a normal vector of R^n.
template <class Function>
[[nodiscard]] double chi_mean(double n, const Function& f) {
  const auto density = [n](double v) { return std::exp(n * v - std::exp(2 * v) / 2 - (n / 2 - 1) * std::log(2.0)); };
  return integral(-20, 3, [&](double v) { return density(v) * f(std::exp(v)); }) / std::tgamma(n / 2);
}

/// E exp(size u_1) for a uniform direction u of R^d, d ≥ 2.
[[nodiscard]] inline double direction_mean(double d, double size) {
  const auto weighted = [=](double v) { return std::exp(size * std::tanh(v)) * std::pow(std::cosh(v), 1 - d); };
  return integral(-40, 40, weighted) * std::tgamma(d / 2) / std::tgamma((d - 1) / 2) / std::sqrt(std::numbers::pi);
}

/// φ(x)·φ(y) of one projection w, as the formulas say: of w·(x - y) for the trigonometric features, w·(x + y) for the
/// others.
[[nodiscard]] inline double of_one_projection(RandomFeatureKind kind, double projected, double norms) {
  if (kind == RandomFeatureKind::positive) return std::exp(projected - norms / 2);
  if (kind == RandomFeatureKind::hyperbolic) return std::exp(-norms / 2) * std::cosh(projected);
  return std::exp(norms / 2) * std::cos(projected);
}

/// Two vectors of which neither the sum nor the difference is short, and what the formulas need of them.
template <class Scalar>
struct FeaturePair {
  DenseVector<Scalar> x, y;
  DenseVector<double> sum, difference;
  double rho2, delta2, norms, softmax;  // ‖x + y‖², ‖x - y‖², ‖x‖² + ‖y‖² and exp(xᵀy)

  explicit FeaturePair(Random& random) {
    const Dense<double> basis = random.rotation(5);
    const double angle = random.uniform(.5, 2.5);
    const auto turned = std::cos(angle) * basis.column(0) + std::sin(angle) * basis.column(1);
    x = (random.uniform(.4, .9) * basis.column(0)).template to<Scalar>();
    y = (random.uniform(.4, .9) * turned).template to<Scalar>();
    sum = x.in_double() + y.in_double();
    difference = x.in_double() - y.in_double();
    rho2 = sum.dot(sum);
    delta2 = difference.dot(difference);
    norms = (rho2 + delta2) / 2;
    softmax = std::exp((rho2 - delta2) / 4);
  }
};

/// A sample and how many of its standard errors its mean is from what is expected.
struct Sample {
  double sum = 0, squares = 0, count = 0;

  void add(double value) { sum += value, squares += value * value, ++count; }
  [[nodiscard]] double z_score(double expected) const {
    const double mean = sum / count;
    return std::abs(mean - expected) / std::sqrt((squares / count - mean * mean) / count);
  }
};

}  // namespace SYMPOW_NAMESPACE::verify::detail
