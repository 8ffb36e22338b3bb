// The gradient row rule: how far two gradients may be apart where both are right.
#pragma once

#include <string>

#include <sympow/verify/gradient_bounds.hpp>
#include <sympow/verify/gradient_parameters.hpp>
#include <sympow/verify/residual.hpp>

namespace SYMPOW_NAMESPACE::verify {

/// Of `rotary_gradient`: dβ max|θ| W_t, dθ_u Σ_ij |Σ_{j<t≤i} β_t| ε_ij, dμ_0 W_1, W levers; each with the frame's own.
[[nodiscard]] inline RotaryGradientReference rotary_bounds(const GradientBounds& of, const GradientCall& call,
                                                           const Vector<Wide>& theta, const Vector<Wide>& beta) {
  Wide fastest = 0, turned = 0;
  for (Index u = 0; u < theta.size(); ++u) fastest = std::max(fastest, std::abs(theta[u]));
  const auto between = [&](Index a, Index b) {  // |Σ β_t| of the tokens behind the earlier one
    Wide sum = 0;
    for (Index t = std::min(a, b) + 1; t <= std::max(a, b); ++t) sum += beta[t];
    return std::abs(sum);
  };
  for (Index t = 0; t < beta.size(); ++t)
    turned += std::abs(beta[t]) * (of.frame_lever + (call.is_absolute() ? of.step_levers[t] : Wide(0)));
  for (Index i = 0; i < of.levers.cols() && !call.is_absolute(); ++i)
    for (Index j = -1; j + 1 < of.levers.rows(); ++j)
      if (const Index at = of.row_tokens[static_cast<std::size_t>(i)]; at >= 0)
        turned += between(j, at) * of.levers(j + 1, i);
  RotaryGradientReference bounds{Vector<Wide>::Constant(theta.size(), turned), Vector<Wide>::Zero(beta.size()), {}};
  for (Index t = 0; t < beta.size(); ++t) bounds.beta[t] = fastest * (of.step_levers[t] + of.frame_lever);
  const Wide first = of.step_levers.size() > 0 ? of.step_levers[0] : Wide(0);
  bounds.mu = Vector<Wide>::Constant(theta.size(), first + of.frame_lever);
  return bounds;
}

/// Of `channel_gradient`: W_t for every channel.
[[nodiscard]] inline Matrix<Wide> channel_bounds(const GradientBounds& of, Index d) {
  return of.step_levers.transpose().replicate(d, 1);
}

/// Of `householder_gradient`: dw_t 2 |β_t| ‖w_t‖ W_t, dβ_t ‖w_t‖² W_t.
[[nodiscard]] inline HouseholderGradientReference householder_bounds(const GradientBounds& of, const Matrix<Wide>& w,
                                                                     const Vector<Wide>& beta) {
  HouseholderGradientReference bounds{Matrix<Wide>(w.rows(), w.cols()), Vector<Wide>(beta.size())};
  for (Index t = 0; t < w.cols(); ++t) {
    const Wide length = w.col(t).norm();
    bounds.w.col(t).setConstant(2 * std::abs(beta[t]) * length * of.step_levers[t]);
    bounds.beta[t] = length * length * of.step_levers[t];
  }
  return bounds;
}

/// Of `structured_gradient`: dr_t ‖Λ‖_∞ w_t, dΛ Σ_t |r_t| w_t, skew(UᵀdU) Σ_t w_t with w the levers of a token's pairs.
[[nodiscard]] inline StructuredGradientReference structured_bounds(const GradientBounds& of, const Matrix<Wide>& lambda,
                                                                   const Matrix<Wide>& r, Index d) {
  StructuredGradientReference bounds{
      Matrix<Wide>::Zero(r.rows(), r.cols()), Matrix<Wide>::Zero(lambda.rows(), lambda.cols()), {}};
  for (Index k = 0; k < r.rows(); ++k) {
    Wide rates = 0, sum = 0;
    for (Index u = 0; u < lambda.cols(); ++u) rates += std::abs(lambda(k, u));
    for (Index t = 0; t < r.cols(); ++t) {
      bounds.positions(k, t) = rates * of.own_levers[t];
      sum += std::abs(r(k, t)) * of.own_levers[t];
    }
    bounds.frequencies.row(k).setConstant(sum);
  }
  bounds.basis = Matrix<Wide>::Constant(d, d, of.own_levers.sum());
  return bounds;
}

/// max |Δ| / bound over the entries of a gradient, by its name; `row` is the column of the worst entry, its token where
/// columns are tokens. Bound 1. What is not finite, of another shape, or off where the bound is 0 or not finite, is
/// infinitely wrong.
[[nodiscard]] inline Residual worst_entry(const std::string& name, const Matrix<Wide>& found,
                                          const Matrix<Wide>& expected, const Matrix<Wide>& bound) {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  Residual worst{0, 1, name};
  if (found.rows() != expected.rows() || found.cols() != expected.cols()) return {infinity, 1, name};
  for (Index t = 0; t < found.cols(); ++t)
    for (Index c = 0; c < found.rows(); ++c) {
      const Wide apart = std::abs(found(c, t) - expected(c, t));
      if (apart == 0) continue;
      double ratio = static_cast<double>(apart / bound(c, t));
      if (!(ratio >= 0 && std::isfinite(bound(c, t)))) ratio = infinity;
      if (ratio > worst.residual) worst.residual = ratio, worst.row = t;
    }
  return worst;
}

/// The gradients that every call has, dQ, dK, dV, d scale, [dS_0; dZ_0] where there is a state, and d log γ where
/// it has T entries or one, the sum: the worst entry of them, by its name.
[[nodiscard]] inline Residual worst_gradient(const GradientReference& found, const GradientReference& expected,
                                             const GradientBounds& bounds) {
  const auto one = [](Wide x) { return Matrix<Wide>(Matrix<Wide>::Constant(1, 1, x)); };
  Residual worst{0, 1};
  const auto add = [&](const Residual& next) { worst = worse(worst, next); };
  add(worst_entry("dQ", found.Q, expected.Q, bounds.Q));
  add(worst_entry("dK", found.K, expected.K, bounds.K));
  add(worst_entry("dV", found.V, expected.V, bounds.V));
  add(worst_entry("d scale", one(found.scale), one(expected.scale), one(bounds.scale)));
  if (expected.initial.size() > 0) add(worst_entry("[dS_0; dZ_0]", found.initial, expected.initial, bounds.initial));
  if (found.log_gamma.size() == 1 && expected.log_gamma.size() != 1)
    add(worst_entry("d log gamma", one(found.log_gamma[0]), one(expected.log_gamma.sum()),
                    one(bounds.log_gamma.sum())));
  else
    add(worst_entry("d log gamma", found.log_gamma.transpose(), expected.log_gamma.transpose(),
                    bounds.log_gamma.transpose()));
  return worst;
}

/// The call with dY = 0 in every row that says nothing in this arithmetic, or that another side flags.
[[nodiscard]] inline GradientCall without_degenerate_rows(GradientCall call, const GradientArithmetic& arithmetic = {},
                                                          const std::vector<bool>& flagged = {}) {
  const std::vector<bool> degenerate = gradient_bounds(call, arithmetic).is_degenerate;
  for (std::size_t i = 0; i < degenerate.size(); ++i)
    if (degenerate[i] || (i < flagged.size() && flagged[i])) call.dY.col(static_cast<Index>(i)).setZero();
  return call;
}

}  // namespace SYMPOW_NAMESPACE::verify
