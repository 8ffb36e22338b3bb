// Forgetting as a distance: how far two tokens are apart for a gate.
#pragma once

#include <limits>

#include <sympow/transition/transition.hpp>

namespace SYMPOW_NAMESPACE {

/// The distance of every earlier token j from token i by the scalar gates.
///
///     D(j, i) = -log b_ij = -Σ_{s=j+1..i} log γ_s,   j ≤ i;   +∞ for the future, which the mask hides
///
/// T × T, one token i a column: softmax logits are Kᵀ Q - D. D ≥ 0, D(i, i) = 0 and D(j, i) = D(j, k) + D(k, i): a
/// metric but for symmetry, and but for D = 0 between tokens with only open gates (γ = 1) between them. A closed gate
/// (γ = 0) is infinitely far. For a transition without a length `tokens` says T. Cost: T²/2 additions. Throws
/// `ShapeMismatch`. Source: On the Legacy of Linear Transformers in Positional Embeddings, box on the distance.
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

/// The same by one channel of the keys: the scalar gates and those of the channel. A gate by channel has no single
/// distance; it has one for each channel. Throws `ShapeMismatch`, `InvalidArgument` for a channel that is not there.
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
