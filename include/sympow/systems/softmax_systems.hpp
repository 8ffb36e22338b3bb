// Duals: softmax attention whose positional embedding is the transition of a linear system.
#pragma once

#include <cmath>

#include <sympow/feature/exponential.hpp>
#include <sympow/systems/system.hpp>
#include <sympow/transition/decay.hpp>
#include <sympow/transition/householder.hpp>
#include <sympow/transition/product.hpp>
#include <sympow/transition/rotary.hpp>

namespace SYMPOW_NAMESPACE::systems {

/// The softmax dual of a linear system: the same transition with exp. Its rows are normalized.
template <FeatureMap F, Transition A>
[[nodiscard]] System<Exponential, A> dual(const System<F, A>& system) {
  return {{}, system.transition};
}

/// No positional embedding: causal softmax of q·k. Dual of `linear_attention`. Source: NoPE (2023).
[[nodiscard]] inline auto nope() { return System{Exponential{}, stationary()}; }

/// ALiBi: logits q·k - m (i - j). slope m ≥ 0 is one of `alibi_slopes(heads)`; as published, the scale d^{-1/2} applies
/// to q·k only. Dual of `retnet` with γ = e^{-m}. Throws `InvalidGate`. Source: ALiBi (2021); one box prints the
/// opposite sign, see docs/errata.md.
[[nodiscard]] inline auto alibi(double slope) {
  if (!(slope >= 0)) sympow::detail::raise<InvalidGate>("alibi: slope is ", slope, ", must be at least 0");
  return System{Exponential{}, ConstantDecay::from_log(-slope)};
}

/// Forgetting Transformer: logits q·k + Σ_{s=j+1..i} log γ_s, with log γ = `log_sigmoid(x)` of the gate's logits; the
/// scale applies to q·k only. Dual of `mamba2`. fla: `forgetting_attn`, gate `g`. Throws `InvalidGate`. Source:
/// Forgetting Transformer (2025).
template <class LogGates>
[[nodiscard]] auto fox(const Eigen::DenseBase<LogGates>& log_gamma) {
  return System{Exponential{}, decay(log_gamma)};
}

/// RoPE: logits (R(iθ) q)·(R(jθ) k). θ = `rope_frequencies(d)`; most checkpoints use `Pairing::half_split`. Dual of
/// `complex_gate`. ggml: `ggml_rope_ext`. Throws `NotFinite`. Source: RoFormer (2021).
template <class Angles>
[[nodiscard]] auto rope(const Eigen::DenseBase<Angles>& theta, Pairing pairing) {
  return System{Exponential{}, rotary(theta, pairing)};
}

/// PaTH: logits k_jᵀ A_{j+1} ⋯ A_i q_i, A_s = I - β_s w_s w_sᵀ, w of unit length and β in (0, 2). Dual of `delta_net`
/// with w = k. fla: `path_attn`, `w` and `beta`, scale d^{-1/2}. Throws `ShapeMismatch`, `NotFinite`. Source: PaTH
/// Attention (2025).
template <MatrixExpression Vectors, class Strengths>
[[nodiscard]] auto path(const Vectors& w, const Eigen::DenseBase<Strengths>& beta) {
  return System{Exponential{}, householder(w, beta)};
}

/// PaTH-FoX: logits scale · k_jᵀ A_{j+1} ⋯ A_i q_i + gate_scale Σ_{s=j+1..i} log γ_s. gate_scale is 1 in FoX and in the
/// dual of `gated_delta_net`. fla's `path_attn` also scales the gates: pass the call's `Options::scale`. Throws
/// `ShapeMismatch`, `NotFinite`, `InvalidGate`, and `InvalidArgument` unless gate_scale is positive and finite. Source:
/// PaTH Attention (2025).
template <MatrixExpression Vectors, class Strengths, class LogGates>
[[nodiscard]] auto path_fox(const Vectors& w, const Eigen::DenseBase<Strengths>& beta,
                            const Eigen::DenseBase<LogGates>& log_gamma, double gate_scale) {
  if (!(gate_scale > 0 && std::isfinite(gate_scale)))
    sympow::detail::raise<InvalidArgument>("path_fox: gate_scale is ", gate_scale, ", must be positive and finite");
  const Eigen::VectorXd scaled = log_gamma.derived().matrix().template cast<double>().reshaped();
  return System{Exponential{}, decay(gate_scale * scaled) * householder(w, beta)};
}

}  // namespace SYMPOW_NAMESPACE::systems
