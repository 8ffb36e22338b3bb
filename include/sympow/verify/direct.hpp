// Attention by its definition, in double, without blocks, states or shortcuts: what every form is measured against.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>

#include <sympow/attention/engine/ordinary_rows.hpp>
#include <sympow/core/exponential.hpp>
#include <sympow/core/integer_power.hpp>

namespace sympow::verify {

/// Rows by the definition, with what the row rule needs.
struct DirectRows {
  Matrix<double> Y;             ///< e × T
  Eigen::VectorXd denominator;  ///< Σ_j s_ij
  Eigen::VectorXd condition;    ///< K_i for normalised rows, A_i for sums, K_i (1 + |Y_i| / max|V|) for signed means
  Eigen::VectorXd window;       ///< Σ_j b_ij, tokens inside the gate's effective window
  double largest_value = 0;     ///< max |V|
};

/// Causal attention in double, as the formula says.
///
///     y_i = Σ_{j ≤ i} s_ij v_j  (/ Σ s_ij),   s_ij = κ(scale · q_iᵀ M_ij k_j) b_ij,   M_ij = (A_{j+1} … A_i)ᵀ in key space
///     A_i = Σ_j b_ij (|scale| ‖q_i‖ ‖M_ij k_j‖)^P,   K_i = A_i / |Σ_j s_ij|
///
/// Shapes as in `attention`, any scalar type. Every key is moved on by the dense A_i at every step: O(T² d²) operations where the
/// transition acts on keys, else O(T² d). For an exponential score the weight of a pair in A_i is e^s (1 + |scale| ‖q‖ ‖k‖).
template <class Normalization = DefaultNormalization, FeatureMap F, Transition A, class DQ, class DK, class DV>
[[nodiscard]] DirectRows direct_attention(const F& feature, const A& transition, const Eigen::MatrixBase<DQ>& Q,
                                          const Eigen::MatrixBase<DK>& K, const Eigen::MatrixBase<DV>& V,
                                          const Options& options = {}) {
  constexpr bool sums = sympow::detail::rows_of<Normalization, F>() == sympow::detail::Rows::sums;
  constexpr bool signed_means = sympow::detail::rows_of<Normalization, F>() == sympow::detail::Rows::signed_means;
  sympow::detail::check_call(transition, Q, K, V, options);
  const Index T = Q.cols(), d = Q.rows();
  const Matrix<double> v = V.template cast<double>();
  Matrix<double> q = Q.template cast<double>() * options.scale, k = K.template cast<double>();
  Eigen::VectorXd log_b = Eigen::VectorXd::Zero(T);
  Eigen::ArrayXd b, score, weight;
  DirectRows rows{Matrix<double>::Zero(V.rows(), T), Eigen::VectorXd(T), Eigen::VectorXd(T), Eigen::VectorXd(T),
                  V.size() > 0 ? v.cwiseAbs().maxCoeff() : 0};
  const auto embedded = [&]([[maybe_unused]] const auto& x) {
    Matrix<double> phi;
    if constexpr (F::score == Score::embedded) {
      phi.resize(feature.dimension(d), x.cols());
      feature.embed(Matrix<double>(x), phi);
    }
    return phi;
  };
  // Embedded scores have no M between q and k: both stand in absolute coordinates, turned by A_1 … A_i.
  constexpr bool acts_on_keys = A::key_action != KeyAction::none;
  constexpr bool absolute = acts_on_keys && F::score == Score::embedded;
  Matrix<double> turned = Matrix<double>::Identity(d, d);
  for (Index i = 0; i < T; ++i) {
    if constexpr (absolute) {
      turned = (turned * transition.key_matrix(i, d)).eval();
      q.col(i) = (turned * q.col(i)).eval();
      k.col(i) = (turned * k.col(i)).eval();
    }
    if (i > 0) {
      if constexpr (acts_on_keys && !absolute)
        k.leftCols(i) = (transition.key_matrix(i, d).transpose() * k.leftCols(i)).eval();
      log_b.head(i).array() += transition.log_decay(i);
    }
    const auto seen = k.leftCols(i + 1);
    const Eigen::ArrayXd s = seen.transpose() * q.col(i);
    sympow::detail::set_exponential(b, log_b.head(i + 1).array());
    const Eigen::ArrayXd norms = seen.colwise().stableNorm().transpose().array() * q.col(i).stableNorm();
    double shift = 0;
    if constexpr (F::score == Score::power) {
      score = b * s.unaryExpr(sympow::detail::RaiseTo{F::degree});
      weight = b * norms.unaryExpr(sympow::detail::RaiseTo{F::degree});
    } else if constexpr (F::score == Score::exponential) {
      shift = sums ? 0 : (s + log_b.head(i + 1).array()).maxCoeff();
      sympow::detail::set_exponential(score, s + log_b.head(i + 1).array() - shift);
      weight = score * (1 + norms);
    } else {
      const Matrix<double> phi_k = embedded(seen), phi_q = embedded(q.col(i));
      score = b * (phi_k.transpose() * phi_q).array();
      weight = b * phi_k.colwise().norm().transpose().array() * phi_q.norm();
    }
    rows.denominator[i] = score.sum();
    rows.condition[i] = sums ? weight.sum() : weight.sum() / std::abs(rows.denominator[i]);
    rows.window[i] = b.sum();
    rows.Y.col(i) = v.leftCols(i + 1) * score.matrix();
    if (!sums && rows.denominator[i] != 0) rows.Y.col(i) /= rows.denominator[i];
    if (signed_means && rows.largest_value > 0)  // a signed mean can leave the range of the values
      rows.condition[i] *= 1 + rows.Y.col(i).cwiseAbs().maxCoeff() / rows.largest_value;
  }
  return rows;
}

/// Whether a row says nothing: its scores cancel to within what the state forms can tell from zero, 16 u A_i.
[[nodiscard]] inline bool degenerate(const DirectRows& rows, Index i, double unit) {
  return rows.denominator[i] == 0 || !(rows.condition[i] * 16 * unit < 1);
}

/// The row rule: how far two results are apart, in units of what their arithmetic excuses; at most 1 is agreement.
///
///     max_i |ΔY_i| / (4 u · K_i · max|V| · (1 + √n_i))
///
/// n_i = window_i / tokens_per_update, the updates of whichever side makes more of them: 1 for a recurrence, and for the definition
/// where it moves keys on token by token; the chunk for the chunked form; infinity (no updates) for the attention form. Chunks under gates
/// that close fast are cut into pieces, of 8 tokens or more and in double up to four to a window, which then are the updates. Degenerate rows
/// of means are not compared. A result that is not finite gives infinity.
template <class Normalization = DefaultNormalization, FeatureMap F, class DA, class DB>
[[nodiscard]] double row_rule(const DirectRows& rows, const Eigen::MatrixBase<DA>& a, const Eigen::MatrixBase<DB>& b,
                              double unit, double tokens_per_update = 1) {
  constexpr bool sums = sympow::detail::rows_of<Normalization, F>() == sympow::detail::Rows::sums;
  sympow::detail::check_size("columns of Y", a.cols(), rows.Y.cols(), "rows that were evaluated");
  sympow::detail::check_size("columns of the other Y", b.cols(), rows.Y.cols(), "rows that were evaluated");
  constexpr double shortest = 8, most = -2 / sympow::detail::least_log_decay<typename DA::Scalar>;  // of pieces
  const bool has_chunks = 1 < tokens_per_update && std::isfinite(tokens_per_update);
  double worst = 0;
  for (Index i = 0; i < rows.Y.cols(); ++i) {
    if (rows.Y.rows() == 0 || (!sums && degenerate(rows, i, unit))) continue;
    const double difference =
        (a.col(i).template cast<double>() - b.col(i).template cast<double>()).cwiseAbs().maxCoeff();
    const double updates =
        std::max(rows.window[i] / tokens_per_update, has_chunks ? std::min(rows.window[i] / shortest, most) : 0.0);
    const double allowed = 4 * unit * rows.condition[i] * rows.largest_value * (1 + std::sqrt(updates));
    const double ratio = difference == 0 ? 0 : difference / allowed;
    worst = ratio <= worst ? worst : std::isnan(ratio) ? std::numeric_limits<double>::infinity() : ratio;
  }
  return worst;
}

}  // namespace sympow::verify
