// Decay as a distance between tokens.
#pragma once

#include <limits>

#include <sympow/transition/transition.hpp>

namespace SYMPOW_NAMESPACE {

/// Distances of every earlier token j from token i under the scalar gates.
///
///     D(j, i) = -log b_ij = -Σ_{s=j+1..i} log γ_s,   j ≤ i;   +∞ for j > i, which the mask hides
///
/// Shape: T × T, one token i per column; softmax logits are Kᵀ Q - D. D ≥ 0, D(i, i) = 0 and D(j, i) = D(j, k) + D(k,
/// i): a metric except for symmetry, and for D = 0 across open gates (γ = 1). A closed gate (γ = 0) is at infinite
/// distance. `tokens` is T, needed for transitions without a length. Cost: T²/2 additions. Throws
template <Transition A>
[[nodiscard]] Eigen::MatrixXd gate_distances(const A& transition, Index tokens) {
  if (tokens < 0) detail::raise<ShapeMismatch>("gate_distances: tokens is ", tokens, ", must not be negative");
  if (transition.length() != Dynamic)
    detail::check_size("tokens", tokens, transition.length(), "length of the transition");
  Eigen::MatrixXd D = Eigen::MatrixXd::Constant(tokens, tokens, std::numeric_limits<double>::infinity());
  for (Index i = 0; i < tokens; ++i) {
    D(i, i) = 0;
    for (Index j = 0; j < i; ++j) D(j, i) = D(j, i - 1) - transition.log_decay(i);
  }
  return D;
}

/// Distances under the scalar gates and those of one key channel. Throws `ShapeMismatch`, and `InvalidArgument` for a
/// channel outside of 0 … d - 1.
template <Transition A>
  requires(A::key_action == KeyAction::scale)
[[nodiscard]] Eigen::MatrixXd gate_distances(const A& transition, Index tokens, Index channel) {
  if (channel < 0 || channel >= transition.key_dimension())
    detail::raise<InvalidArgument>("gate_distances: channel is ", channel, ", must lie in [0, ",
                                   transition.key_dimension(), ")");
  Eigen::MatrixXd D = gate_distances(transition, tokens);
  Eigen::VectorXd between = Eigen::VectorXd::Zero(tokens), gates(transition.key_dimension());
  for (Index i = 1; i < tokens; ++i) {
    transition.log_channel_totals({i, 1}, gates);
    for (Index j = 0; j < i; ++j) {
      between[j] -= gates[channel];
      D(j, i) += between[j];
    }
  }
  return D;
}

}  // namespace SYMPOW_NAMESPACE
