// Random features, positive, trigonometric and hyperbolic, of independent and of orthogonal rows: 4.P1 to 4.P11.
#pragma once

#include <algorithm>
#include <limits>
#include <tuple>
#include <utility>

#include <sympow/feature/random_feature_variance.hpp>
#include <sympow/structured/cayley.hpp>
#include <sympow/structured/post_rotation.hpp>
#include <sympow/verify/proposition.hpp>
#include "propositions/dense_rotations.hpp"
#include "propositions/feature_means.hpp"
#include "propositions/largest.hpp"

namespace SYMPOW_NAMESPACE::verify {
namespace detail {

/// The errors of a mean and of the library's features, in units of what rounding explains, and of the variance of one
/// kind.
template <RandomFeatureKind Kind, class Scalar>
void examine(const FeaturePair<Scalar>& pair, double formula, std::uint64_t seed, Largest& unbiased,
             Largest& variance) {
  constexpr bool trigonometric = Kind == RandomFeatureKind::trigonometric;
  const RandomFeatures<Kind> feature(5, 7, {.seed = seed});
  Matrix<Scalar> xy(5, 2), phi(feature.dimension(5), 2);
  for (Index i = 0; i < 5; ++i) {
    xy(i, 0) = pair.x[i];
    xy(i, 1) = pair.y[i];
  }
  feature.embed(xy, phi);
  const Dense<Scalar> features = phi;
  const auto one = [&](double projected) { return of_one_projection(Kind, projected, pair.norms); };
  const auto projected = Dense<double>(feature.projections()) * (trigonometric ? pair.difference : pair.sum);
  double expected = 0;
  for (Index r = 0; r < 7; ++r) expected += one(projected[r]) / 7;
  const double scale = trigonometric ? std::exp(pair.norms / 2) : expected;
  unbiased.add(std::abs(features.column(0).dot(features.column(1)) - expected) / scale / (64 * unit_roundoff<Scalar>));

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
    const double rho2 = pair.rho2, squared = std::pow(pair.softmax, 2), lost = -std::expm1(-rho2);
    const double mse = std::exp(rho2) * squared * lost;
    const double of_cosines = std::exp(rho2) / squared * std::pow(std::expm1(-pair.delta2), 2) / 2;
    examine<positive>(pair, mse, n, unbiased, of_positive);
    examine<positive>(pair, (std::exp(pair.norms) * squared - 1) * squared, n, unbiased, of_positive);
    examine<trigonometric>(pair, of_cosines, n, unbiased, of_trigonometric);
    examine<hyperbolic>(pair, lost / 2 * mse, n, unbiased, of_hyperbolic);
    const auto printed = [&](double t) { return std::exp(pair.norms / 2) * std::exp(t); };
    bias = std::min(bias, (gauss_mean(pair.sum.norm(), printed) / pair.softmax - 1) / pair.norms);
  }
  ledger.erratum(
      "4.P1", bias, .99,
      "φ(x) = exp(+‖x‖²/2) exp(wᵀx) is unbiased for SM = exp(xᵀy); relative bias / (‖x‖² + ‖y‖²), least of 30",
      "E §3, \"Appendix 3.1 proves that choosing …\"",
      "φ(x) = exp(-‖x‖²/2) exp(wᵀx) is; trigonometric and hyperbolic ones are; error over what rounding explains",
      unbiased.value(), 1);
  auto e = DenseVector<Scalar>::zero(5);
  e[0] = 1;
  const double least = random_feature_variance(positive, e, -e, 1, false) / std::exp(-1.);
  ledger.erratum("4.P2", random_feature_variance(positive, e, e, 1, false) / std::exp(1.) - least, 100,
                 "the mean squared error is linear in SM; what m MSE / SM grows by from y = -x to y = x at ‖x‖ = 1",
                 "E §3, \"Appendix 3.1 proves that choosing …\"",
                 "MSE⁺ = e^{ρ²} SM² (1 - e^{-ρ²}) / m = (e^{‖x‖²+‖y‖²} SM⁴ - SM²) / m, ρ = ‖x + y‖",
                 of_positive.value(), rounding_of_quadrature);
  ledger.holds("4.P3", of_trigonometric.value(), rounding_of_quadrature,
               "trigonometric features: MSE = e^{ρ²} SM⁻² (1 - e^{-‖x-y‖²})² / 2m",
               "extension of E §3, \"Appendix 3.1 proves that choosing …\"");
  ledger.holds("4.P4", of_hyperbolic.value(), rounding_of_quadrature,
               "hyperbolic features, m pairs w and -w: MSE = (1 - e^{-ρ²}) MSE⁺ / 2",
               "extension of E §3, \"Appendix 3.1 proves that choosing …\"");
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
    double mean = 0;
    for (int n = 0; n < 64; ++n) mean += turned(std::numbers::pi * n / 32) / 64;
    compare(2, mean);
    for (const double d : {2., 3., 8., 16.})  // w₁ + w₂ has a uniform direction and a length of χ_2d
      compare(d, chi_mean(2 * d, [&](double length) { return direction_mean(d, rho * length); }));
  }
  ledger.holds("4.P5", error.value(), rounding_of_quadrature,
               "E e^{(w₁+w₂)·z} = ₁F₁(d; d/2; ‖z‖²/2) for orthogonal w₁ and w₂ of χ_d lengths (quadrature)",
               "extension of E §3, \"Replacing independent samples with orthogonalized …\"");
}

/// The z-scores of the mean, and of what orthogonal rows take off the variance, over so many draws of the projections.
template <class Scalar>
[[nodiscard]] double orthogonal_rows_z_score(Index d, Index m, std::uint64_t draws, Random& random) {
  const auto difference = Dense<double>(random.matrix(d, 2 * d)) / 4;
  Dense<double> half(d, 2 * d);  // x + y along the axes, where a bias of signs would show, and along others
  half.set_part(0, 0, Dense<double>::identity(d) / 2);
  half.set_part(0, d, Dense<double>(random.rotation(d)) / 2);
  const auto X = (half + difference).template to<Scalar>(), Y = (half - difference).template to<Scalar>();
  DenseVector<double> softmax(2 * d);
  for (Index j = 0; j < 2 * d; ++j) softmax[j] = std::exp(.25 - std::pow(difference.column(j).norm(), 2));
  constexpr auto kind = RandomFeatureKind::positive;
  const auto x = X.column(0), y = Y.column(0);
  const double less = random_feature_variance(kind, x, y, m, false) - random_feature_variance(kind, x, y, m);
  const auto seed = static_cast<std::uint64_t>(random.integer(0, 1 << 30));
  const double share = 1 / static_cast<double>(m);
  Sample mean, removed;
  Matrix<Scalar> phi(m, 2 * d), psi(m, 2 * d);
  for (std::uint64_t n = 0; n < draws; ++n) {
    const PositiveRandomFeatures feature(d, m, {.seed = seed + n});
    feature.embed(X.plain(), phi);
    feature.embed(Y.plain(), psi);
    double sum = 0, squares = 0;
    for (Index j = 0; j < 2 * d; ++j) {
      double off = -1;
      for (Index i = 0; i < m; ++i) {
        const double estimate = static_cast<double>(phi(i, j) * psi(i, j)) / softmax[j];
        off += estimate;
        squares += std::pow(estimate - share, 2);
      }
      sum += off;
      squares -= off * off;
    }
    mean.add(sum / static_cast<double>(2 * d));
    removed.add(squares / static_cast<double>(2 * d));
  }
  return std::max(mean.z_score(0), removed.z_score(less / std::pow(softmax[0], 2)));
}

template <class Scalar>
void orthogonal_variance(Ledger& ledger, Random& random) {
  Largest z, beyond, known;
  // As many as have a z-score of 30 if nothing were taken off.
  for (const auto& [d, m, draws] :
       {std::tuple<Index, Index, int>{2, 2, 20000}, {4, 4, 5000}, {4, 2, 20000}, {6, 6, 2500}})
    z.add(orthogonal_rows_z_score<Scalar>(d, m, static_cast<std::uint64_t>(draws), random));
  ledger.holds("4.P6", z.value(), 5.5,
               "MSE_ort = MSE⁺ - (1 - 1/m) e^{-‖x‖²-‖y‖²} [e^{ρ²} - ₁F₁(d; d/2; ρ²/2)], m ≤ d; mean SM: z-scores",
               "extension of E §3, \"Replacing independent samples with orthogonalized …\"");
  const auto variance = [](Index d, Index m, double rho, bool orthogonal = true) {
    auto x = DenseVector<Scalar>::zero(d);
    x[d - 1] = static_cast<Scalar>(rho / 2);
    return random_feature_variance(RandomFeatureKind::positive, x, x, m, orthogonal);
  };
  // The same for d = 4 and ρ = 1 with a share of the covariance of one pair.
  const auto with_share = [](double m, double share) {
    const double e = std::numbers::e;
    return std::exp(-.5) * ((e * e - e) / m - share * (e - confluent_hypergeometric(4, 2, .5)));
  };
  for (const int m : {4, 8, 20}) beyond.add(std::abs(variance(4, m, 1) / with_share(m, 3. / m) - 1));
  ledger.control("4.P6m", std::abs(with_share(8, 7. / 8) / (variance(4, 4, 1) / 2) - 1), 1e-3,
                 "the factor 1 - 1/m beyond one block: at m = 2d two independent blocks halve 4.P6",
                 "extension of E §3, \"Replacing independent samples with orthogonalized …\"");
  ledger.holds("4.P6n", beyond.value(), rounding_of_quadrature, "it is (d - 1)/m for whole blocks, m a multiple of d",
               "extension of E §3, \"Replacing independent samples with orthogonalized …\"");

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
               "E §3, \"Replacing independent samples with orthogonalized …\"; E §abstract, \"We develop equivariant "
               "structured positional rotations …\"");
  ledger.holds("4.P8", known.value(), 1,
               "the known bound 2(m-1)/(m(d+2)) (SM - e^{-(‖x‖²+‖y‖²)/2})² is below what they take off it; ratio",
               "extension of E §3, \"Replacing independent samples with orthogonalized …\"");
  const auto ratio = [&](Index m, double rho) { return variance(8, m, rho) / variance(8, m, rho, false); };
  const double rho = 1. / 128, expansion = 7 * rho * rho / 20;
  ledger.erratum("4.P9", std::min(std::abs(ratio(8, .125) - ratio(8, 1.5)), std::abs(ratio(8, 1.5) - ratio(2, 1.5))),
                 .05, "the variance falls by a factor that depends on d; at d = 8 how much it varies with ρ and with m",
                 "E §3, \"Replacing independent samples with orthogonalized …\"",
                 "it is 1 - (m - 1) ρ² / (2(d + 2)) + … for short x + y, and exactly that of 4.P6",
                 std::abs((1 - ratio(8, rho)) / expansion - 1), rho * rho);
}

/// A = QR by reflections of 4 × 4 matrices; Q remains, and A becomes R.
template <class Scalar>
[[nodiscard]] Dense<Scalar> reflected(Dense<Scalar>& A) {
  auto Q = Dense<Scalar>::identity(A.rows());
  for (Index j = 0; j + 1 < A.rows(); ++j) {
    auto v = A.column(j);
    for (Index i = 0; i < j; ++i) v[i] = 0;
    v[j] += std::copysign(static_cast<Scalar>(v.norm()), v[j]);
    v = v.normalized();
    const Dense<Scalar> column = v, H = Dense<Scalar>::identity(A.rows()) - 2 * column * column.transpose();
    A = H * A;
    Q = Q * H;
  }
  return Q;
}

template <class Scalar>
void unsigned_reflections(Ledger& ledger, Random& random) {
  Sample raw, fixed;
  for (int n = 0; n < 10000; ++n) {
    Dense<Scalar> R = random.matrix<Scalar>(4, 4);
    const auto Q = reflected(R);
    const Dense<Scalar> normal = random.matrix<Scalar>(4, 4);
    double of_raw = 0, of_fixed = 0;
    for (Index j = 0; j < 4; ++j) {
      const double along = static_cast<double>(Q(0, j)) * normal.column(j).norm();
      of_raw += std::exp(along - .5) / 4;
      of_fixed += std::exp((R(j, j) < 0 ? -along : along) - .5) / 4;
    }
    raw.add(of_raw);
    fixed.add(of_fixed);
  }
  ledger.control("4.P10", fixed.z_score(1) <= 5.5 ? raw.z_score(1) : 0, 20,
                 "Q of reflections is Haar's without the signs of R's diagonal (it has Q_11 ≤ 0): z-score of the mean",
                 "extension of E §3, \"Replacing independent samples with orthogonalized …\"");
}

template <class Scalar>
void features_of_rotated_rows(Ledger& ledger, Random& random) {
  using M = Dense<Scalar>;
  using V = DenseVector<Scalar>;
  Largest mean, position;
  for (int n = 0; n < 20; ++n) {
    const auto family = DenseFamily<Scalar>(random, 3, 2, 2).family;
    const auto P = cayley(family, M(random.skew<Scalar>(2)));
    const V q = V(random.vector<Scalar>(6)) / 2, k = V(random.vector<Scalar>(6)) / 2;
    const V r = random.vector<Scalar>(3), s = random.vector<Scalar>(3);
    const M active_q = family.project_active(q), active_k = family.project_active(k);
    const auto turned = [&](const V& at, const M& x) {
      const M moved = post_rotation(family.at(at), P) * x;
      return M(family.project_active(moved)).in_double() / std::sqrt(2.);  // (2m)^¼
    };
    const Dense<double> x = turned(r, active_q), y = turned(s, active_k);
    const M relative = family.at(s - r) * active_k;
    const double logit = active_q.dot(relative) / 2;
    const auto off = [&, norms = x.dot(x) + y.dot(y)](double t) {
      return of_one_projection(RandomFeatureKind::positive, t, norms) - std::exp(logit);
    };
    mean.add(std::abs(gauss_mean((x + y).norm(), off)) / std::exp(logit));
    mean.add(std::abs(static_cast<double>(projected_logit(family, P, q, r, k, s)) - logit));
    position.add(std::abs(std::exp(-x.dot(x) / 2) - std::exp(-active_q.dot(active_q) / 4)));
  }
  ledger.holds("4.P11", mean.value(), 128 * unit_roundoff<Scalar>,
               "positive features of the rotated active q_i and k_j over (2m)^¼ have the mean exp α_ij of (23); P ∈ 𝒜",
               "E §3.1, \"Combining the structured rotations with the …\"; E §F.4, Theorem 1, eq. (23)");
  ledger.holds("4.P11p", position.value(), 64 * unit_roundoff<Scalar>,
               "their factor exp(-‖x‖²/2) does not depend on the position",
               "extension of E §3.1, \"Combining the structured rotations with the …\"");
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

}  // namespace SYMPOW_NAMESPACE::verify
