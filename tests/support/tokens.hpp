// A sequence as numbers, its rows by the definition in long double, and the row rule against them.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include <sympow/attention/options.hpp>
#include <sympow/core/integer_power.hpp>
#include <sympow/transition/decay.hpp>
#include <sympow/transition/product.hpp>
#include <sympow/transition/rotary.hpp>

namespace sympow::test {

using Real = long double;

/// Queries, keys, values and what lies between them. An empty part of the transition is not there.
struct Tokens {
  Eigen::MatrixXd Q, K, V;
  Eigen::VectorXd log_gamma = {};         ///< T
  Eigen::VectorXd theta = {}, beta = {};  ///< d/2 and T
  Eigen::MatrixXd log_a = {};             ///< d × T
  double scale = 1;

  [[nodiscard]] Index size() const { return Q.cols(); }

  /// The tokens of a segment.
  [[nodiscard]] Tokens segment(Segment s) const {
    const auto part = [&](const auto& x) { return x.size() > 0 ? x.middleCols(s.begin, s.size).eval() : x; };
    const auto entries = [&](const Eigen::VectorXd& x) { return x.size() > 0 ? x.segment(s.begin, s.size).eval() : x; };
    return {Q.middleCols(s.begin, s.size),
            K.middleCols(s.begin, s.size),
            V.middleCols(s.begin, s.size),
            entries(log_gamma),
            theta,
            entries(beta),
            part(log_a),
            scale};
  }

  /// Rounds queries, keys and values to a scalar type, so that a reference sees what a call sees.
  template <class Scalar>
  void round_to() {
    for (Eigen::MatrixXd* x : {&Q, &K, &V}) *x = x->cast<Scalar>().template cast<double>().eval();
  }

  /// Calls f with the library's transition.
  template <class F>
  decltype(auto) with_transition(F&& f) const {
    const Decay gates = decay(log_gamma.size() > 0 ? log_gamma : Eigen::VectorXd::Zero(size()).eval());
    if (log_a.size() > 0) return f(channel_decay(log_a) * gates);
    if (theta.size() > 0)
      return f(gates * rotary(theta, beta.size() > 0 ? beta : Eigen::VectorXd::Ones(size()).eval()));
    return f(gates);
  }
};

/// Rows by the definition, with what the rule needs.
struct ReferenceRows {
  Matrix<Real> Y;            ///< e × T, divided by their sums if `means`
  Vector<Real> denominator;  ///< Σ_j s_ij, for means up to a factor that `absolute` and `bound` share
  Vector<Real> absolute;     ///< A_i = Σ_j b_ij (|scale| ‖q_i‖ ‖M_ij k_j‖)^P
  Vector<Real> bound;        ///< the same with every channel as slow as the slowest, to which a state keeps it
  Vector<Real>
      direct;  ///< Σ_j b_ij |scale| ‖q_i‖ ‖M_ij k_j‖ |s_ij/b_ij|^{(P-1)/P}, what the rounding of logits moves, divided likewise
  Vector<Real>
      window;  ///< n_i = Σ_j b_ij, by the slowest channel, or the age of the mean weight where keys shrink faster than that
  Vector<Real> largest;  ///< max |v_j| over j ≤ i
  Vector<Real>
      forgotten;  ///< Σ_j |s_ij| |log b_ij|, channels included, divided likewise: what one rounding of every log b moves
  int P = 1;
  Index d = 1;  ///< of keys
  bool means = false, turned = false;

  /// The last n rows.
  [[nodiscard]] ReferenceRows last(Index n) const {
    return {Y.rightCols(n),
            denominator.tail(n),
            absolute.tail(n),
            bound.tail(n),
            direct.tail(n),
            window.tail(n),
            largest.tail(n),
            forgotten.tail(n),
            P,
            d,
            means,
            turned};
  }

  [[nodiscard]] Real condition(Index i) const { return absolute[i] / std::abs(denominator[i]); }
};

/// Angles by the definition, or rounded to double and reduced mod 2π at every step as the contract has it: the latter is for rows in
/// double, which see the difference.
enum class AngleSums { exact, in_double };

/// y_i = Σ_{j ≤ i} b_ij (scale q_iᵀ M_ij k_j)^P v_j, divided by its sum of weights if `means`.
[[nodiscard]] inline ReferenceRows reference_rows(int P, const Tokens& tokens, bool means,
                                                  AngleSums sums = AngleSums::exact) {
  constexpr Real infinity = std::numeric_limits<Real>::infinity();
  const Index d = tokens.Q.rows(), T = tokens.size(), pairs = tokens.theta.size();
  Matrix<Real> Q = tokens.Q.cast<Real>() * static_cast<Real>(tokens.scale), K = tokens.K.cast<Real>();
  const Matrix<Real> V = tokens.V.cast<Real>();
  Vector<Real> log_b = Vector<Real>::Zero(T), log_slowest = Vector<Real>::Zero(T), angles = Vector<Real>::Zero(pairs);
  ReferenceRows rows{Matrix<Real>::Zero(V.rows(), T),
                     Vector<Real>::Zero(T),
                     Vector<Real>::Zero(T),
                     Vector<Real>::Zero(T),
                     Vector<Real>::Zero(T),
                     Vector<Real>::Zero(T),
                     Vector<Real>::Zero(T),
                     Vector<Real>::Zero(T),
                     P,
                     d,
                     means,
                     pairs > 0 || tokens.log_a.size() > 0};
  Vector<Real> norms(T), lengths(T),
      rounded = Vector<Real>::Zero(T);  // of keys as they are and as they came; Σ |log b|
  for (Index i = 0; i < T; ++i) {
    for (Index n = 0; n < pairs; ++n) {
      const double beta = tokens.beta.size() > 0 ? tokens.beta[i] : 1, theta = tokens.theta[n];
      if (sums == AngleSums::exact)
        angles[n] += static_cast<Real>(beta) * static_cast<Real>(theta);
      else
        angles[n] = std::remainder(static_cast<double>(angles[n]) + beta * theta, 2 * std::numbers::pi);
      const Real c = std::cos(angles[n]), s = std::sin(angles[n]);
      for (Matrix<Real>* x : {&Q, &K}) {
        const Real a = (*x)(2 * n, i), b = (*x)(2 * n + 1, i);
        (*x)(2 * n, i) = c * a - s * b;
        (*x)(2 * n + 1, i) = s * a + c * b;
      }
    }
    if (tokens.log_gamma.size() > 0) {
      log_b.head(i).array() += static_cast<Real>(tokens.log_gamma[i]);
      rounded.head(i).array() -= static_cast<Real>(tokens.log_gamma[i]);
    }
    if (tokens.log_a.size() > 0) {
      const Vector<Real> log_a = tokens.log_a.col(i).cast<Real>();
      for (Index c = 0; c < d; ++c) K.row(c).head(i) *= std::exp(log_a[c]);
      log_slowest.head(i).array() += P * log_a.maxCoeff();
      rounded.head(i).array() += P * (log_a.array() > -infinity).select(log_a, 0).cwiseAbs().maxCoeff();
      norms.head(i) = K.leftCols(i).colwise().norm().transpose();
    }
    norms[i] = lengths[i] = K.col(i).norm();
    const Real length = Q.col(i).norm();
    rows.largest[i] = std::max(i > 0 ? rows.largest[i - 1] : 0, V.rows() > 0 ? V.col(i).cwiseAbs().maxCoeff() : 0);
    Real shift = -infinity;  // a mean does not see a common factor
    for (Index j = 0; j <= i; ++j)
      if (Q.col(i).dot(K.col(j)) != 0) shift = std::max(shift, log_b[j]);
    if (!means || std::isinf(shift)) shift = 0;
    Real age = 0;
    for (Index j = 0; j <= i; ++j) {
      rows.window[i] += std::exp(log_b[j] + log_slowest[j]);
      if (norms[j] == 0) continue;
      const Real b = std::exp(log_b[j] - shift), logit = Q.col(i).dot(K.col(j));
      const Real weight = b * integer_power<Real>(length * norms[j], P);
      rows.absolute[i] += weight;
      age += weight * static_cast<Real>(i - j);
      rows.bound[i] += b * std::exp(log_slowest[j]) * integer_power<Real>(length * lengths[j], P);
      if (logit == 0) continue;
      const Real score = b * integer_power(logit, P);
      rows.Y.col(i) += score * V.col(j);
      rows.denominator[i] += score;
      rows.direct[i] += b * length * norms[j] * integer_power(std::abs(logit), P - 1);
      if (score != 0) rows.forgotten[i] += std::abs(score) * rounded[j];
    }
    if (rows.absolute[i] != 0) rows.window[i] = std::max(rows.window[i], age / rows.absolute[i]);
    if (!means || rows.denominator[i] == 0) continue;
    rows.Y.col(i) /= rows.denominator[i];
    rows.forgotten[i] /= std::abs(rows.denominator[i]);
    rows.direct[i] /= std::abs(rows.denominator[i]);
  }
  return rows;
}

/// What became of the rows of a call.
struct Verdict {
  double worst =
      0;           ///< the largest |ΔY_i| in units of 4 u K_i max|V| (1 + √n_i); infinite for a row that is not finite
  Index row = -1;  ///< where
  Index compared = 0;  ///< rows
  Index flagged = 0;   ///< rows that were not compared
};

/// What the rule is asked of. The 4 u of a row hold P roundings of every logit where those fall in all directions. Rotated logits, and
/// tokens made such that all of them fall in one, are given P u a rounding of Σ_j b_ij |scale| ‖q_i‖ ‖k_j‖ |s_ij/b_ij|^{(P-1)/P}
/// where that is more, a power costs it in any arithmetic of that precision; and 2 n_i u K_i for their n_i updates of a sum.
enum class Inputs { ordinary, aligned };

/// Judges the rows of a call by the row rule. A flagged row is excused if its condition is at least half of 1/(16 u), or if its weights
/// are zero; else it counts as infinitely wrong. n_i is window_i / tokens_per_update.
template <class Scalar>
[[nodiscard]] Verdict judge(const ReferenceRows& rows, const Matrix<Scalar>& Y, const Eigen::MatrixXd& diagnostics,
                            double tokens_per_update, Inputs inputs = Inputs::ordinary) {
  constexpr Real u = std::numeric_limits<Scalar>::epsilon() / 2, infinity = std::numeric_limits<Real>::infinity();
  Verdict verdict;
  for (Index i = 0; i < Y.cols(); ++i) {
    Real ratio = 0;
    if (rows.means && diagnostics(2, i) != 0) {
      ++verdict.flagged;
      const bool excused = rows.denominator[i] == 0 || rows.bound[i] * 32 * u >= std::abs(rows.denominator[i]);
      ratio = excused && Y.col(i).isZero(0) ? 0 : infinity;
    } else {
      ++verdict.compared;
      const Real weight = rows.means ? rows.condition(i) : rows.absolute[i];
      constexpr Real of_gates = 8 * static_cast<Real>(std::numeric_limits<double>::epsilon());
      const Real updates = rows.window[i] / static_cast<Real>(tokens_per_update);
      const Real of_rotations = rows.turned ? 4 * rows.P : 0;
      const Real of_logits = inputs == Inputs::aligned ? rows.P * (2 + std::sqrt(static_cast<Real>(rows.d))) + 2 : 0;
      const Real of_updates = 4 * (1 + std::sqrt(updates)), one_way = inputs == Inputs::aligned ? 2 * updates : 0;
      const Real rule =
          std::max(std::max(of_updates, one_way) * weight, (of_rotations + of_logits) * rows.direct[i]) * u;
      const Real allowed = rows.largest[i] * (rule + of_gates * rows.forgotten[i]);
      for (Index c = 0; c < Y.rows(); ++c) {
        const Real expected = rows.Y(c, i), found = static_cast<Real>(Y(c, i)), difference = std::abs(found - expected);
        if (std::isinf(found) && !rows.means &&
            std::abs(expected) + allowed >= static_cast<Real>(std::numeric_limits<Scalar>::max()))
          continue;
        if (difference <= static_cast<Real>(std::numeric_limits<Scalar>::denorm_min())) continue;
        // A sum of exactly 0 leaves nothing but a rotation's roundings, under which its condition is infinite.
        const bool nothing = rows.means && rows.denominator[i] == 0 && !rows.turned;
        const Real one = nothing ? infinity : difference / allowed;
        ratio = one <= ratio ? ratio : std::isnan(one) ? infinity : one;
      }
    }
    if (static_cast<double>(ratio) > verdict.worst) {
      verdict.worst = static_cast<double>(ratio);
      verdict.row = i;
    }
  }
  return verdict;
}

}  // namespace sympow::test
