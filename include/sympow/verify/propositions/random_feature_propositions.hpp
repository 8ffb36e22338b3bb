// Random features, positive, trigonometric and hyperbolic, of independent and of orthogonal rows: 4.P1 to 4.P11.
#pragma once

#include <Eigen/QR>

#include <algorithm>
#include <limits>
#include <numbers>
#include <utility>

#include <sympow/feature/random_feature_variance.hpp>
#include <sympow/rotation/cayley.hpp>
#include <sympow/rotation/post_rotation.hpp>
#include <sympow/verify/proposition.hpp>
#include <sympow/verify/propositions/dense_rotations.hpp>
#include <sympow/verify/propositions/largest.hpp>

namespace sympow::verify {
namespace detail {

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

/// φ(x)·φ(y) of one projection w, as the formulas say: of w·(x - y) for the trigonometric features, w·(x + y) for the others.
[[nodiscard]] inline double of_one_projection(RandomFeatureKind kind, double projected, double norms) {
  if (kind == RandomFeatureKind::positive) return std::exp(projected - norms / 2);
  if (kind == RandomFeatureKind::hyperbolic) return std::exp(-norms / 2) * std::cosh(projected);
  return std::exp(norms / 2) * std::cos(projected);
}

/// Two vectors of which neither the sum nor the difference is short, and what the formulas need of them.
template <class Scalar>
struct FeaturePair {
  Vector<Scalar> x, y;
  Vector<double> sum, difference;
  double norms, softmax;

  explicit FeaturePair(Random& random) {
    const Matrix<double> basis = random.rotation(5);
    const double angle = random.uniform(.5, 2.5);
    const Vector<double> turned = std::cos(angle) * basis.col(0) + std::sin(angle) * basis.col(1);
    x = (random.uniform(.4, .9) * basis.col(0)).template cast<Scalar>();
    y = (random.uniform(.4, .9) * turned).template cast<Scalar>();
    sum = x.template cast<double>() + y.template cast<double>();
    difference = x.template cast<double>() - y.template cast<double>();
    norms = (sum.squaredNorm() + difference.squaredNorm()) / 2;
    softmax = std::exp((sum.squaredNorm() - difference.squaredNorm()) / 4);
  }
};

/// The errors of a mean and of the library's features, in units of what rounding explains, and of the variance of one kind.
template <RandomFeatureKind Kind, class Scalar>
void examine(const FeaturePair<Scalar>& pair, double formula, std::uint64_t seed, Largest& unbiased,
             Largest& variance) {
  constexpr bool trigonometric = Kind == RandomFeatureKind::trigonometric;
  const RandomFeatures<Kind> feature(5, 7, {.seed = seed});
  Matrix<Scalar> phi(feature.dimension(5), 2);
  feature.embed(pair.x, phi.col(0));
  feature.embed(pair.y, phi.col(1));
  const auto one = [&](double projected) { return of_one_projection(Kind, projected, pair.norms); };
  const Vector<double> projected = feature.projections() * (trigonometric ? pair.difference : pair.sum);
  const double expected = projected.unaryExpr(one).mean(), scale = trigonometric ? std::exp(pair.norms / 2) : expected;
  unbiased.add(std::abs(static_cast<double>(phi.col(0).dot(phi.col(1))) - expected) / scale /
               (64 * unit_roundoff<Scalar>));

  const double size = trigonometric ? pair.difference.norm() : pair.sum.norm();
  unbiased.add(std::abs(gauss_mean(size, one) / pair.softmax - 1) / rounding_of_quadrature);
  const auto squared_error = [&](double t) { return std::pow(one(t) - pair.softmax, 2); };
  const double found = 7 * random_feature_variance(Kind, pair.x, pair.y, 7, false);
  variance.add(std::abs(gauss_mean(size, squared_error) / found - 1));
  variance.add(std::abs(formula / found - 1));
}

template <class Scalar>
void independent_rows(Ledger& ledger, Random& random) {
  using enum RandomFeatureKind;
  Largest unbiased, of_positive, of_trigonometric, of_hyperbolic;
  double bias = std::numeric_limits<double>::infinity();
  for (std::uint64_t n = 0; n < 30; ++n) {
    const FeaturePair<Scalar> pair(random);
    const double rho2 = pair.sum.squaredNorm(), squared = std::pow(pair.softmax, 2), lost = -std::expm1(-rho2);
    const double mse = std::exp(rho2) * squared * lost;
    const double of_cosines = std::exp(rho2) / squared * std::pow(std::expm1(-pair.difference.squaredNorm()), 2) / 2;
    examine<positive>(pair, mse, n, unbiased, of_positive);
    examine<positive>(pair, (std::exp(pair.norms) * squared - 1) * squared, n, unbiased, of_positive);
    examine<trigonometric>(pair, of_cosines, n, unbiased, of_trigonometric);
    examine<hyperbolic>(pair, lost / 2 * mse, n, unbiased, of_hyperbolic);
    const auto printed = [&](double t) { return std::exp(pair.norms / 2) * std::exp(t); };
    bias = std::min(bias, (gauss_mean(pair.sum.norm(), printed) / pair.softmax - 1) / pair.norms);
  }
  ledger.erratum(
      "4.P1", bias, .99,
      "φ(x) = exp(+‖x‖²/2) exp(wᵀx) is unbiased for SM = exp(xᵀy); relative bias / (‖x‖² + ‖y‖²), least of 30", "E §3",
      "φ(x) = exp(-‖x‖²/2) exp(wᵀx) is; trigonometric and hyperbolic ones are; error over what rounding explains",
      unbiased.value(), 1);
  const Vector<Scalar> e = Vector<Scalar>::Unit(5, 0);
  const double least = random_feature_variance(positive, e, -e, 1, false) / std::exp(-1.);
  ledger.erratum("4.P2", random_feature_variance(positive, e, e, 1, false) / std::exp(1.) - least, 100,
                 "the mean squared error is linear in SM; what m MSE / SM grows by from y = -x to y = x at ‖x‖ = 1",
                 "E §3, abstract", "MSE⁺ = e^{ρ²} SM² (1 - e^{-ρ²}) / m = (e^{‖x‖²+‖y‖²} SM⁴ - SM²) / m, ρ = ‖x + y‖",
                 of_positive.value(), rounding_of_quadrature);
  ledger.holds("4.P3", of_trigonometric.value(), rounding_of_quadrature,
               "trigonometric features: MSE = e^{ρ²} SM⁻² (1 - e^{-‖x-y‖²})² / 2m", "(extension)");
  ledger.holds("4.P4", of_hyperbolic.value(), rounding_of_quadrature,
               "hyperbolic features, m pairs w and -w: MSE = (1 - e^{-ρ²}) MSE⁺ / 2", "(extension)");
}

template <class Scalar>
void orthogonal_pairs(Ledger& ledger) {
  Largest error;
  for (const double rho : {.25, 1., 2.}) {
    const auto compare = [&](double d, double found) {
      error.add(std::abs(found / confluent_hypergeometric(d, d / 2, rho * rho / 2) - 1));
    };
    const auto ray = [](double size) { return chi_mean(2, [size](double a) { return std::exp(size * a); }); };
    const auto turned = [&](double angle) { return ray(rho * std::cos(angle)) * ray(-rho * std::sin(angle)); };
    compare(2, Vector<double>::LinSpaced(64, 0, std::numbers::pi * 63 / 32).unaryExpr(turned).mean());
    for (const double d : {2., 3., 8., 16.})  // w₁ + w₂ has a uniform direction and a length of χ_2d
      compare(d, chi_mean(2 * d, [&](double length) { return direction_mean(d, rho * length); }));
  }
  ledger.holds("4.P5", error.value(), rounding_of_quadrature,
               "E e^{(w₁+w₂)·z} = ₁F₁(d; d/2; ‖z‖²/2) for orthogonal w₁ and w₂ of χ_d lengths (quadrature)",
               "(extension)");
}

/// A sample and how many of its standard errors its mean is from what is expected.
struct Sample {
  double sum = 0, squares = 0, count = 0;

  void add(double value) { sum += value, squares += value * value, ++count; }
  [[nodiscard]] double z_score(double expected) const {
    const double mean = sum / count;
    return std::abs(mean - expected) / std::sqrt((squares / count - mean * mean) / count);
  }
};

/// The z-scores of the mean, and of what orthogonal rows take off the variance, over many draws of the projections.
template <class Scalar>
[[nodiscard]] double orthogonal_rows_z_score(Index d, Index m, Random& random) {
  const Matrix<double> apart = random.matrix(d, 2 * d) / 4;
  Matrix<double> half(d, 2 * d);  // x + y along the axes, where a bias of signs would show, and along others
  half << Matrix<double>::Identity(d, d) / 2, random.rotation(d) / 2;
  const Matrix<Scalar> X = (half + apart).template cast<Scalar>(), Y = (half - apart).template cast<Scalar>();
  const Eigen::ArrayXXd softmax = (.25 - apart.colwise().squaredNorm().array()).exp();
  constexpr auto kind = RandomFeatureKind::positive;
  const double less = random_feature_variance(kind, X.col(0), Y.col(0), m, false) -
                      random_feature_variance(kind, X.col(0), Y.col(0), m);
  const auto seed = static_cast<std::uint64_t>(random.integer(0, 1 << 30));
  const double share = 1 / static_cast<double>(m);
  Sample mean, removed;
  Matrix<Scalar> phi(m, 2 * d), psi(m, 2 * d);
  for (std::uint64_t n = 0; n < 20000; ++n) {
    const PositiveRandomFeatures feature(d, m, {.seed = seed + n});
    feature.embed(X, phi);
    feature.embed(Y, psi);
    const Eigen::ArrayXXd rows = phi.cwiseProduct(psi).template cast<double>().array() / softmax.replicate(m, 1);
    const Eigen::ArrayXXd off = rows.colwise().sum() - 1;
    mean.add(off.mean());
    removed.add(((rows - share).square().sum() - off.square().sum()) / static_cast<double>(2 * d));
  }
  return std::max(mean.z_score(0), removed.z_score(less / std::pow(softmax(0), 2)));
}

template <class Scalar>
void orthogonal_variance(Ledger& ledger, Random& random) {
  Largest z, beyond, known;
  for (const auto& [d, m] : {std::pair<Index, Index>{2, 2}, {4, 4}, {4, 2}, {6, 6}})
    z.add(orthogonal_rows_z_score<Scalar>(d, m, random));
  ledger.holds("4.P6", z.value(), 5.5,
               "MSE_ort = MSE⁺ - (1 - 1/m) e^{-‖x‖²-‖y‖²} [e^{ρ²} - ₁F₁(d; d/2; ρ²/2)], m ≤ d; mean SM: z-scores",
               "E §3 (exact form)");
  const auto variance = [](Index d, Index m, double rho, bool orthogonal = true) {
    const Vector<Scalar> x = Vector<Scalar>::Unit(d, d - 1) * static_cast<Scalar>(rho / 2);
    return random_feature_variance(RandomFeatureKind::positive, x, x, m, orthogonal);
  };
  // The same for d = 4 and ρ = 1 with a share of the covariance of one pair.
  const auto with_share = [](double m, double share) {
    const double e = std::numbers::e;
    return std::exp(-.5) * ((e * e - e) / m - share * (e - confluent_hypergeometric(4, 2, .5)));
  };
  for (const int m : {4, 8, 20}) beyond.add(std::abs(variance(4, m, 1) / with_share(m, 3. / m) - 1));
  ledger.control("4.P6m", std::abs(with_share(8, 7. / 8) / (variance(4, 4, 1) / 2) - 1), 1e-3,
                 "the factor 1 - 1/m beyond one block: at m = 2d two independent blocks halve 4.P6", "E §3");
  ledger.holds("4.P6n", beyond.value(), rounding_of_quadrature, "it is (d - 1)/m for whole blocks, m a multiple of d",
               "(extension)");

  double not_lower = 0;
  for (const Index d : {2, 3, 4, 8, 64})
    for (const double rho : {.125, .25, 1., 2., 3.})
      for (const Index m : {Index(2), d, 2 * d + 1}) {
        const double independent = variance(d, m, rho, false), removed = independent - variance(d, m, rho);
        if (!(removed > 1e-9 * independent)) ++not_lower;
        const double scale = static_cast<double>(m - 1) / static_cast<double>(m * (d + 2));
        const double gap = std::exp(rho * rho / 4) - std::exp(-rho * rho / 4);
        if (m <= d) known.add(2 * scale * gap * gap / removed);
      }
  ledger.holds("4.P7", not_lower, 0,
               "orthogonal rows lower the variance for all d ≥ 2 and ρ > 0, not in a limit only: counterexamples",
               "E §3, abstract");
  ledger.holds("4.P8", known.value(), 1,
               "the known bound 2(m-1)/(m(d+2)) (SM - e^{-(‖x‖²+‖y‖²)/2})² is below what they take off it; ratio",
               "(extension)");
  const auto ratio = [&](Index m, double rho) { return variance(8, m, rho) / variance(8, m, rho, false); };
  const double rho = 1. / 128, expansion = 7 * rho * rho / 20;
  ledger.erratum("4.P9", std::min(std::abs(ratio(8, .125) - ratio(8, 1.5)), std::abs(ratio(8, 1.5) - ratio(2, 1.5))),
                 .05, "the variance falls by a factor that depends on d; at d = 8 how much it varies with ρ and with m",
                 "E §3", "it is 1 - (m - 1) ρ² / (2(d + 2)) + … for short x + y, and exactly that of 4.P6",
                 std::abs((1 - ratio(8, rho)) / expansion - 1), rho * rho);
}

template <class Scalar>
void unsigned_reflections(Ledger& ledger, Random& random) {
  Sample raw, fixed;
  for (int n = 0; n < 10000; ++n) {
    const Eigen::HouseholderQR<Matrix<Scalar>> qr(random.matrix<Scalar>(4, 4));
    const Matrix<Scalar> Q = qr.householderQ();
    const auto lengths = random.matrix<Scalar>(4, 4).colwise().norm().eval();
    const Eigen::ArrayXd along = Q.row(0).cwiseProduct(lengths).transpose().array().template cast<double>();
    raw.add((along - .5).exp().mean());
    fixed.add((along * qr.matrixQR().diagonal().array().sign().template cast<double>() - .5).exp().mean());
  }
  ledger.control("4.P10", fixed.z_score(1) <= 5.5 ? raw.z_score(1) : 0, 20,
                 "Q of reflections is Haar's without the signs of R's diagonal (it has Q_11 ≤ 0): z-score of the mean",
                 "E §3 (implementation)");
}

template <class Scalar>
void features_of_rotated_rows(Ledger& ledger, Random& random) {
  Largest mean, position;
  for (int n = 0; n < 20; ++n) {
    const auto family = DenseFamily<Scalar>(random, 3, 2, 2).family;
    const auto P = cayley(family, random.skew<Scalar>(2));
    const Vector<Scalar> q = random.vector<Scalar>(6) / 2, k = random.vector<Scalar>(6) / 2;
    const Vector<Scalar> r = random.vector<Scalar>(3), s = random.vector<Scalar>(3);
    const auto turned = [&](const Vector<Scalar>& at, const Vector<Scalar>& x) -> Vector<double> {
      const Matrix<Scalar> moved = post_rotation(family.at(at), P) * family.project_active(x);
      return family.project_active(moved).template cast<double>() / std::sqrt(2.);  // (2m)^¼
    };
    const Vector<double> x = turned(r, q), y = turned(s, k);
    const Matrix<Scalar> relative = family.at(s - r) * family.project_active(k);
    const double logit = static_cast<double>(family.project_active(q).col(0).dot(relative.col(0))) / 2;
    const auto off = [&, norms = x.squaredNorm() + y.squaredNorm()](double t) {
      return of_one_projection(RandomFeatureKind::positive, t, norms) - std::exp(logit);
    };
    mean.add(std::abs(gauss_mean((x + y).norm(), off)) / std::exp(logit));
    mean.add(std::abs(static_cast<double>(projected_logit(family, P, q, r, k, s)) - logit));
    const auto active = static_cast<double>(family.project_active(q).squaredNorm());
    position.add(std::abs(std::exp(-x.squaredNorm() / 2) - std::exp(-active / 4)));
  }
  ledger.holds("4.P11", mean.value(), 128 * unit_roundoff<Scalar>,
               "positive features of the rotated active q_i and k_j over (2m)^¼ have the mean exp α_ij of (23); P ∈ 𝒜",
               "E §3.1");
  ledger.holds("4.P11p", position.value(), 64 * unit_roundoff<Scalar>,
               "their factor exp(-‖x‖²/2) does not depend on the position", "(extension)");
}

}  // namespace detail

/// Decides 4.P1 to 4.P11 on random inputs of this seed.
template <class Scalar>
void random_feature_propositions(Ledger& ledger, std::uint64_t seed) {
  Random random(seed);
  detail::independent_rows<Scalar>(ledger, random);
  detail::orthogonal_pairs<Scalar>(ledger);
  detail::orthogonal_variance<Scalar>(ledger, random);
  detail::unsigned_reflections<Scalar>(ledger, random);
  detail::features_of_rotated_rows<Scalar>(ledger, random);
}

}  // namespace sympow::verify
