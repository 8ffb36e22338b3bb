// What other libraries call their gates, strengths and slopes, as the logarithms and numbers that transitions take.
#pragma once

#include <algorithm>
#include <cmath>

#include <sympow/core/checks.hpp>
#include <sympow/core/concepts.hpp>

/// The named systems of the literature as a feature map and a transition each, and the parameters of their peers.
namespace SYMPOW_NAMESPACE::systems {

/// log(1 + e^x) without overflow or loss.
[[nodiscard]] inline double softplus(double x) { return std::max(x, 0.) + std::log1p(std::exp(-std::abs(x))); }

/// Numbers in double in the shape of X, a vector where X is one.
template <class X>
using DoublesLike = Eigen::Matrix<double, X::RowsAtCompileTime, X::ColsAtCompileTime>;

/// log σ(x) = -softplus(-x), by entry and in double: the log gate of FoX from its logit wᵀx + b (`forgetting_attn`'s
/// `g`), and that of any gate σ(x). Never compute log(σ(x)): it is -∞ from x < -745 on.
template <class Logits>
[[nodiscard]] DoublesLike<Logits> log_sigmoid(const Eigen::DenseBase<Logits>& logits) {
  return logits.derived().matrix().template cast<double>().unaryExpr([](double x) { return -softplus(-x); });
}

/// σ(x), by entry and in double: the strength β of DeltaNet from its logit. `2 * sigmoid(x)` is what fla calls
/// `allow_neg_eigval`.
template <class Logits>
[[nodiscard]] DoublesLike<Logits> sigmoid(const Eigen::DenseBase<Logits>& logits) {
  return log_sigmoid(logits).unaryExpr([](double x) { return std::exp(x); });
}

/// log σ(x)/τ: the log gates of GLA from the logits of its gate projection, d × T; τ is fla's `gate_logit_normalizer`.
template <class Logits>
[[nodiscard]] DoublesLike<Logits> gla_log_gates(const Eigen::DenseBase<Logits>& logits, double tau = 16) {
  if (!(tau > 0)) detail::raise<InvalidArgument>("gla_log_gates: tau is ", tau, ", must be positive");
  return log_sigmoid(logits) / tau;
}

/// Δ_t = softplus(dt_t + dt_bias): the step sizes of a head of Mamba-2. Its inputs are written as Δ_t x_t.
template <class Steps>
[[nodiscard]] Eigen::VectorXd mamba2_steps(const Eigen::DenseBase<Steps>& dt, double dt_bias) {
  return dt.derived().matrix().template cast<double>().reshaped().unaryExpr(
      [=](double x) { return softplus(x + dt_bias); });
}

/// log γ_t = -e^{A_log} Δ_t: the log gates of a head of Mamba-2, and of Gated DeltaNet, from the parameters in a
/// checkpoint.
template <class Steps>
[[nodiscard]] Eigen::VectorXd mamba2_log_gates(const Eigen::DenseBase<Steps>& dt, double A_log, double dt_bias) {
  return -std::exp(A_log) * mamba2_steps(dt, dt_bias);
}

/// γ = 1 - 2^{-5-h} for head h = 0, 1, …: RetNet's decay.
[[nodiscard]] inline double retnet_gamma(Index head) {
  if (head < 0) detail::raise<InvalidArgument>("retnet_gamma: head is ", head, ", must not be negative");
  return 1 - std::exp2(-5. - static_cast<double>(head));
}

/// The slopes m_h of ALiBi as published: the geometric sequence from 2^{-8/n} for n heads if n is a power of two; else
/// that of the next smaller power of two, and then every second one of the next larger.
[[nodiscard]] inline Eigen::VectorXd alibi_slopes(Index heads) {
  if (heads < 1) detail::raise<InvalidArgument>("alibi_slopes: heads is ", heads, ", must be at least 1");
  Index power = 1;
  while (2 * power <= heads) power *= 2;
  Eigen::VectorXd slopes(heads);
  for (Index h = 0; h < heads; ++h) {
    const auto n = static_cast<double>(power), later = static_cast<double>(h - power);
    slopes[h] = h < power ? std::exp2(-8 * static_cast<double>(h + 1) / n) : std::exp2(-4 * (2 * later + 1) / n);
  }
  return slopes;
}

/// x / max(‖x‖, least) by columns: the L2-normalised keys of the delta rule. Zero columns stay zero.
template <MatrixExpression X>
[[nodiscard]] Matrix<scalar_t<X>> unit_columns(const X& x, double least = 1e-12) {
  Matrix<scalar_t<X>> result = x;
  for (Index t = 0; t < result.cols(); ++t)
    result.col(t) /= std::max(result.col(t).stableNorm(), static_cast<scalar_t<X>>(least));
  return result;
}

/// β_t v_t: what the delta rule writes.
template <MatrixExpression Values, class Strengths>
[[nodiscard]] Matrix<scalar_t<Values>> delta_rule_values(const Values& v, const Eigen::DenseBase<Strengths>& beta) {
  detail::check_size("strengths beta", beta.size(), v.cols(), "columns of V, one a token");
  return v * beta.derived().matrix().reshaped().template cast<scalar_t<Values>>().asDiagonal();
}

}  // namespace SYMPOW_NAMESPACE::systems
