// Gates, strengths and slopes of other libraries, converted to the arguments of transitions.
#pragma once

#include <algorithm>
#include <cmath>

#include <sympow/core/checks.hpp>
#include <sympow/core/concepts.hpp>

/// Named systems of the literature as a feature map and a transition, and conversions from peers' parameters.
namespace SYMPOW_NAMESPACE::systems {

/// log(1 + e^x) without overflow or cancellation.
[[nodiscard]] inline double softplus(double x) { return std::max(x, 0.) + std::log1p(std::exp(-std::abs(x))); }

/// A double matrix with the compile-time shape of X.
template <class X>
using DoublesLike = Eigen::Matrix<double, X::RowsAtCompileTime, X::ColsAtCompileTime>;

/// log σ(x) = -softplus(-x), entrywise and in double: the log gate of FoX from its logit wᵀx + b (`forgetting_attn`'s
/// `g`), and of any gate σ(x). Do not compute log(σ(x)): it is -∞ for x < -745.
template <class Logits>
[[nodiscard]] DoublesLike<Logits> log_sigmoid(const Eigen::DenseBase<Logits>& logits) {
  return logits.derived().matrix().template cast<double>().unaryExpr([](double x) { return -softplus(-x); });
}

/// σ(x), entrywise and in double: the strength β of DeltaNet from its logit. `2 * sigmoid(x)` is fla's
/// `allow_neg_eigval`.
template <class Logits>
[[nodiscard]] DoublesLike<Logits> sigmoid(const Eigen::DenseBase<Logits>& logits) {
  return log_sigmoid(logits).unaryExpr([](double x) { return std::exp(x); });
}

/// log σ(x)/τ: log gates of GLA from the logits of its gate projection, d × T; τ is fla's `gate_logit_normalizer`.
template <class Logits>
[[nodiscard]] DoublesLike<Logits> gla_log_gates(const Eigen::DenseBase<Logits>& logits, double tau = 16) {
  if (!(tau > 0)) detail::raise<InvalidArgument>("gla_log_gates: tau is ", tau, ", must be positive");
  return log_sigmoid(logits) / tau;
}

/// Δ_t = softplus(dt_t + dt_bias): step sizes of a Mamba-2 head, whose inputs are Δ_t x_t.
template <class Steps>
[[nodiscard]] Eigen::VectorXd mamba2_steps(const Eigen::DenseBase<Steps>& dt, double dt_bias) {
  return dt.derived().matrix().template cast<double>().reshaped().unaryExpr(
      [=](double x) { return softplus(x + dt_bias); });
}

/// log γ_t = -e^{A_log} Δ_t: log gates of a head of Mamba-2 or Gated DeltaNet, from checkpoint parameters.
template <class Steps>
[[nodiscard]] Eigen::VectorXd mamba2_log_gates(const Eigen::DenseBase<Steps>& dt, double A_log, double dt_bias) {
  return -std::exp(A_log) * mamba2_steps(dt, dt_bias);
}

/// γ = 1 - 2^{-5-h}: decay of RetNet's head h = 0, 1, ….
[[nodiscard]] inline double retnet_gamma(Index head) {
  if (head < 0) detail::raise<InvalidArgument>("retnet_gamma: head is ", head, ", must not be negative");
  return 1 - std::exp2(-5. - static_cast<double>(head));
}

/// ALiBi's slopes m_h as published: the geometric sequence from 2^{-8/n} if the number n of heads is a power of two.
/// Otherwise that of the next smaller power, then every second slope of the next larger one.
[[nodiscard]] inline Eigen::VectorXd alibi_slopes(Index heads) {
  if (heads < 1) detail::raise<InvalidArgument>("alibi_slopes: heads is ", heads, ", must be at least 1");
  Index power = 1;
  while (2 * power <= heads) power *= 2;
  Eigen::VectorXd slopes(heads);
  for (Index h = 0; h < heads; ++h) {
    const auto n = static_cast<double>(power), extra = static_cast<double>(h - power);
    slopes[h] = h < power ? std::exp2(-8 * static_cast<double>(h + 1) / n) : std::exp2(-4 * (2 * extra + 1) / n);
  }
  return slopes;
}

/// x / max(‖x‖, least) per column: L2-normalized keys for the delta rule. Zero columns stay zero.
template <MatrixExpression X>
[[nodiscard]] Matrix<scalar_t<X>> unit_columns(const X& x, double least = 1e-12) {
  Matrix<scalar_t<X>> result = x;
  for (Index t = 0; t < result.cols(); ++t)
    result.col(t) /= std::max(result.col(t).stableNorm(), static_cast<scalar_t<X>>(least));
  return result;
}

/// β_t v_t: the values of the delta rule.
template <MatrixExpression Values, class Strengths>
[[nodiscard]] Matrix<scalar_t<Values>> delta_rule_values(const Values& v, const Eigen::DenseBase<Strengths>& beta) {
  detail::check_size("strengths beta", beta.size(), v.cols(), "columns of V, one a token");
  return v * beta.derived().matrix().reshaped().template cast<scalar_t<Values>>().asDiagonal();
}

}  // namespace SYMPOW_NAMESPACE::systems
