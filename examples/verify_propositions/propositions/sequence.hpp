// A random sequence, the three forms on it, and dense attention by whatever formula a page prints for the scores.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <string>

#include <sympow/attention/compiled_forms.hpp>
#include <sympow/attention/forms.hpp>
#include <sympow/core/random.hpp>
#include <sympow/feature/symmetric_power.hpp>
#include <sympow/rotation/frequencies.hpp>
#include <sympow/systems/peer_parameters.hpp>
#include <sympow/verify/direct.hpp>
#include <sympow/verify/proposition.hpp>
#include "propositions/dense.hpp"

namespace SYMPOW_NAMESPACE::verify::detail {

/// The same numbers in double.
template <MatrixExpression X>
[[nodiscard]] Dense<double> in_double(const X& x) {
  return Dense<double>(x.template cast<double>());
}
template <class Scalar, int Columns>
[[nodiscard]] Dense<double, Columns> in_double(const Dense<Scalar, Columns>& x) {
  return x.in_double();
}

/// max |a - b|; not a number if the shapes differ or an entry is not finite, which decides nothing.
[[nodiscard]] inline double distance(const Dense<double>& a, const Dense<double>& b) {
  const bool same_shape = a.rows() == b.rows() && a.cols() == b.cols();
  return same_shape ? (a - b).largest() : std::numeric_limits<double>::quiet_NaN();
}

/// The larger of two residuals; one that is not a number stays.
[[nodiscard]] inline double worse(double a, double b) { return std::isnan(b) || b > a ? b : a; }

/// Seventy tokens: more than a block of the attention form, and not a multiple of the chunk. β is rounded to 20 binary
/// places, so that sums of it are exact.
template <class Scalar>
struct Sequence {
  static constexpr Index d = 6, e = 4, T = 70;
  static constexpr double largest_document = 4096;

  Dense<Scalar> Q, K, V;
  DenseVector<double> log_gamma, beta, theta = rotary_frequencies<double>(d, largest_document);

  explicit Sequence(std::uint64_t seed) : log_gamma(T), beta(T) {
    Random random(seed);
    Q = random.matrix<Scalar>(d, T);
    K = random.matrix<Scalar>(d, T);
    V = random.matrix<Scalar>(e, T);
    for (double& log : log_gamma) log = -systems::softplus(-(1 + random.normal()));
    for (double& rate : beta) rate = std::ldexp(std::round(std::ldexp(1 + std::tanh(random.normal()), 20)), -20);
  }

  [[nodiscard]] DenseVector<double> q(Index i) const { return Q.column(i).in_double(); }
  [[nodiscard]] DenseVector<double> k(Index j) const { return K.column(j).in_double(); }
  [[nodiscard]] DenseVector<double> v(Index j) const { return V.column(j).in_double(); }

  /// b_ij = Π_{k=j+1..i} γ_k, by multiplication.
  [[nodiscard]] double b(Index i, Index j) const {
    double product = 1;
    for (Index n = j + 1; n <= i; ++n) product *= std::exp(log_gamma[n]);
    return product;
  }

  /// c_ij = Σ_{k=j+1..i} β_k.
  [[nodiscard]] double c(Index i, Index j) const {
    double sum = 0;
    for (Index n = j + 1; n <= i; ++n) sum += beta[n];
    return sum;
  }
};

/// What the angle of a rotation is off by at most after n steps, in radians: angles are double, and a step rounds a
/// product and a sum below 16, by 8 u each, and takes at most two turns by a 2π that is rounded by 2.2 u.
[[nodiscard]] inline double angle_error(Index steps) {
  return 20.4 * static_cast<double>(steps) * unit_roundoff<double>;
}

/// A row-rule bound for scores of degree P under a rotation: an angle off by δ moves a score by P δ of what the rule
/// goes by.
template <class Scalar>
[[nodiscard]] Bound turning_bound(int P, Index steps) {
  return {1 + P * angle_error(steps) / (4 * unit_roundoff<Scalar>),
          "the angle of a rotation is rounded at each of " + std::to_string(steps) + " steps, and a score of degree " +
              std::to_string(P) + " moves by " + std::to_string(P) + " times its error",
          "row rule"};
}

/// The matrix of R(angles) by its definition.
[[nodiscard]] inline Dense<double> rotation_matrix(const DenseVector<double>& angles) {
  Dense<double> R = Dense<double>::zero(2 * angles.size(), 2 * angles.size());
  for (Index j = 0; j < angles.size(); ++j) {
    R(2 * j, 2 * j) = R(2 * j + 1, 2 * j + 1) = std::cos(angles[j]);
    R(2 * j + 1, 2 * j) = std::sin(angles[j]);
    R(2 * j, 2 * j + 1) = -std::sin(angles[j]);
  }
  return R;
}

/// [v; 1].
[[nodiscard]] inline DenseVector<double> extended(const DenseVector<double>& v) {
  DenseVector<double> one_more = DenseVector<double>::constant(v.size() + 1, 1, 1);
  for (Index r = 0; r < v.size(); ++r) one_more[r] = v[r];
  return one_more;
}

/// Causal attention with any scores, dense and in double: y_i = Σ_{j ≤ i} score(i, j) v_j / Σ_{j ≤ i} score(i, j).
template <class Score, class Scalar>
[[nodiscard]] Dense<double> attend(const Score& score, const Matrix<Scalar>& V) {
  Dense<double> Y = Dense<double>::zero(V.rows(), V.cols());
  for (Index i = 0; i < V.cols(); ++i) {
    double sum = 0;
    for (Index j = 0; j <= i; ++j) {
      const double s = score(i, j);
      sum += s;
      for (Index r = 0; r < V.rows(); ++r) Y(r, i) += s * static_cast<double>(V(r, j));
    }
    for (Index r = 0; r < V.rows(); ++r) Y(r, i) /= sum;
  }
  return Y;
}

/// What counts as seen: an error of a row that is no rounding, in units of max |V|.
inline const Bound visible_error{1e-3, {}, "max|V|"};

/// How far Y is from the rows of a form, in units of max |V|, over the rows that rounding moves by at most
/// `visible_error`.
[[nodiscard]] inline double departure(const DirectRows<double>& rows, const Dense<double>& form, const Dense<double>& Y,
                                      double unit) {
  double worst = 0;
  for (Index i = 0; i < Y.cols(); ++i) {
    const double rounding = 4 * unit * rows.condition[i] * (1 + std::sqrt(rows.window[i]));
    if (rounding <= visible_error) worst = worse(worst, (form.column(i) - Y.column(i)).largest() / rows.largest_value);
  }
  return worst;
}

/// The three forms on the same tokens, to be compared with what a formula gives.
template <class Scalar, FiniteFeatureMap F, class Normalization>
struct Forms {
  static constexpr Index chunk = 5;

  DirectRows<double> rows;               ///< the definition; its conditions are what both comparisons go by
  std::array<Dense<Scalar>, 3> outputs;  ///< attention, recurrent, chunked

  /// The worst row of the three forms against Y, in units of the row rule.
  [[nodiscard]] double disagreement(const Dense<double>& Y) const {
    const std::array<double, 3> tokens_per_update = {std::numeric_limits<double>::infinity(), 1, chunk};
    double worst = 0;
    for (std::size_t n = 0; n < outputs.size(); ++n)
      worst =
          worse(worst, row_rule<Normalization, F>(rows, outputs[n], Y, unit_roundoff<Scalar>, tokens_per_update[n]));
    return worst;
  }

  /// How far Y is from the recurrence, as `departure` measures it.
  [[nodiscard]] double departure(const Dense<double>& Y) const {
    return detail::departure(rows, outputs[1].in_double(), Y, unit_roundoff<Scalar>);
  }

  Bound visible = visible_error;
};

template <class Normalization = DefaultNormalization, FiniteFeatureMap F, Transition A, class Scalar>
[[nodiscard]] Forms<Scalar, F, Normalization> forms(const F& feature, const A& transition, const Matrix<Scalar>& Q,
                                                    const Matrix<Scalar>& K, const Matrix<Scalar>& V) {
  Options options;
  options.chunk = Forms<Scalar, F, Normalization>::chunk;
  State<Scalar, F> literal(feature, Q.rows(), V.rows(), 0), state(feature, Q.rows(), V.rows());
  return {direct_attention<Normalization>(feature, transition, Q, K, V),
          {attention<Normalization>(feature, transition, Q, K, V),
           recurrent<Normalization>(feature, transition, Q, K, V, literal),
           chunked<Normalization>(feature, transition, Q, K, V, state, options)}};
}

/// A feature map of one's own, by its φ of a column in double, without negative scores: the forms are compiled once for
/// all of them.
struct GivenFeatures {
  static constexpr Score score = Score::embedded;
  static constexpr bool nonnegative = true;
  std::function<DenseVector<double>(const DenseVector<double>&)> phi;

  [[nodiscard]] Index dimension(Index d) const { return phi(DenseVector<double>::zero(d)).size(); }
  template <class X, class Y>
  void embed(const X& x, Y&& y) const {
    DenseVector<double> column(x.rows());
    for (Index t = 0; t < x.cols(); ++t) {
      for (Index i = 0; i < x.rows(); ++i) column[i] = static_cast<double>(x(i, t));
      const DenseVector<double> image = phi(column);
      for (Index i = 0; i < image.size(); ++i) y(i, t) = static_cast<typename std::remove_cvref_t<Y>::Scalar>(image[i]);
    }
  }
};

/// The recurrence's state [S; Z] after all tokens, (e + 1) × D.
template <FiniteFeatureMap F, Transition A, class Scalar>
[[nodiscard]] Dense<double> state_after(const F& feature, const A& transition, const Matrix<Scalar>& Q,
                                        const Matrix<Scalar>& K, const Matrix<Scalar>& V) {
  State<Scalar, F> state(feature, Q.rows(), V.rows(), 0);
  static_cast<void>(recurrent<SignedNormalized>(feature, transition, Q, K, V, state));
  const Dense<Scalar> S = state.values();
  const DenseVector<Scalar> Z = state.normalizer();
  Dense<double> both(S.rows() + 1, S.cols());
  for (Index n = 0; n < S.cols(); ++n) {
    for (Index r = 0; r < S.rows(); ++r) both(r, n) = static_cast<double>(S(r, n));
    both(S.rows(), n) = static_cast<double>(Z[n]);
  }
  return both;
}

/// The largest entry that Σ_j b_Tj [v_j; 1] φ(k_j)ᵀ could have: what errors of a state are relative to.
template <class Scalar>
[[nodiscard]] double state_size(const Sequence<Scalar>& tokens, int P, bool gated) {
  double size = 0;
  for (Index j = 0; j < tokens.T; ++j)
    size += (gated ? tokens.b(tokens.T - 1, j) : 1) * std::max(1.0, tokens.v(j).largest()) *
            std::pow(tokens.k(j).norm(), P);
  return size;
}

}  // namespace SYMPOW_NAMESPACE::verify::detail
