// Systems with a finite state: linear transformers and their powers.
#pragma once

#include <sympow/feature/linear.hpp>
#include <sympow/feature/symmetric_power.hpp>
#include <sympow/systems/system.hpp>
#include <sympow/transition/channel_decay.hpp>
#include <sympow/transition/decay.hpp>
#include <sympow/transition/householder.hpp>
#include <sympow/transition/product.hpp>
#include <sympow/transition/rotary.hpp>

namespace SYMPOW_NAMESPACE::systems {

/// Linear attention: S_i = S_{i-1} + v_i k_iᵀ. Dual: `nope`. fla: `linear_attn`, unnormalized, scale d^{-1/2}. Source:
/// Transformers are RNNs (2020).
[[nodiscard]] inline auto linear_attention() { return System{Linear{}, stationary()}; }

/// RetNet: S_i = γ S_{i-1} + v_i k_iᵀ, γ = `retnet_gamma(head)`. Dual: `alibi` with slope -log γ. fla: `retention`; its
/// layer also rotates queries and keys: multiply by `rotary`. Throws `InvalidGate`. Source: Retentive Network (2023).
[[nodiscard]] inline auto retnet(double gamma) { return System{Linear{}, constant_decay(gamma)}; }

/// Mamba-2: S_i = γ_i S_{i-1} + Δ_i x_i B_iᵀ, read with C_i; so Q = C, K = B, V = Δ x. log γ = `mamba2_log_gates(dt,
/// A_log, dt_bias)`, Δ = `mamba2_steps(dt, dt_bias)`. Dual: `fox`. fla: `simple_gla`; ggml: `ggml_ssm_scan`. Scale 1.
/// Throws `InvalidGate`. Source: Transformers are SSMs (2024).
template <class LogGates>
[[nodiscard]] auto mamba2(const Eigen::DenseBase<LogGates>& log_gamma) {
  return System{Linear{}, decay(log_gamma)};
}

/// Gated linear attention: S_i = S_{i-1} diag(a_i) + v_i k_iᵀ. log_a: d × T, `gla_log_gates` of the gate's logits.
/// Dual: per-channel FoX, the same transition with `Exponential`; not an additive bias. fla: `gla`, gate `gk`, scale
/// d^{-1/2}; ggml: `ggml_gated_linear_attn`, whose gate is a itself. Throws `InvalidGate`. Source: Gated Linear
/// Attention (2023).
template <class LogGates>
[[nodiscard]] auto gla(const Eigen::DenseBase<LogGates>& log_a) {
  return System{Linear{}, channel_decay(log_a)};
}

/// A complex gate: S_i = S_{i-1} e^{iΩ} + v_i k̃_iᴴ over C^{d/2}, with pairs (Re, Im) of real coordinates. θ = Ω, d/2
/// radians per token. Dual: `rope`. Throws `NotFinite`. Source: On the Legacy of Linear Transformers in Positional
/// Embeddings, §4.
template <class Angles>
[[nodiscard]] auto complex_gate(const Eigen::DenseBase<Angles>& theta, Pairing pairing) {
  return System{Linear{}, rotary(theta, pairing)};
}

/// DeltaNet: S_i = S_{i-1} (I - β_i k_i k_iᵀ) + β_i v_i k_iᵀ. Pass unit keys (`unit_columns`) here and to the form, and
/// the values `delta_rule_values(V, beta)`. β in (0, 1) is `sigmoid` of its logit; twice that allows negative
/// eigenvalues. Dual: `path` with w = k. fla: `delta_rule`, scale d^{-1/2}. Throws `ShapeMismatch`, `NotFinite`.
/// Source: Parallelizing Linear Transformers with the Delta Rule (2024).
template <MatrixExpression Keys, class Strengths>
[[nodiscard]] auto delta_net(const Keys& k, const Eigen::DenseBase<Strengths>& beta) {
  return System{Linear{}, householder(k, beta)};
}

/// Gated DeltaNet: S_i = γ_i S_{i-1} (I - β_i k_i k_iᵀ) + β_i v_i k_iᵀ, otherwise as `delta_net`. log γ =
/// `mamba2_log_gates(a, A_log, dt_bias)`. Dual: `path_fox` with w = k. fla: `gated_delta_rule`, `g` and `beta`; ggml:
/// `ggml_gated_delta_net`. Source: Gated Delta Networks (2024).
template <MatrixExpression Keys, class Strengths, class LogGates>
[[nodiscard]] auto gated_delta_net(const Keys& k, const Eigen::DenseBase<Strengths>& beta,
                                   const Eigen::DenseBase<LogGates>& log_gamma) {
  return System{Linear{}, decay(log_gamma) * householder(k, beta)};
}

/// Kimi Delta Attention: S_i = S_{i-1} diag(a_i) (I - β_i k_i k_iᵀ) + β_i v_i k_iᵀ, otherwise as `delta_net`. log_a: d
/// × T. Dual: the same transition with `Exponential`. fla: `kda`, `g` and `beta`. Throws `InvalidGate`. Source: Kimi
/// Linear (2025).
template <MatrixExpression Keys, class Strengths, class LogGates>
[[nodiscard]] auto kimi_delta_attention(const Keys& k, const Eigen::DenseBase<Strengths>& beta,
                                        const Eigen::DenseBase<LogGates>& log_a) {
  return System{Linear{}, channel_decay(log_a) * householder(k, beta)};
}

/// A symmetric power transformer: S_i = S_{i-1} + v_i φ^P(k_i)ᵀ, scores (q·k)^P. retention: `power_retention`, `deg` P,
/// without gates. Source: Symmetric Power Transformers.
template <int P>
[[nodiscard]] auto sympow_attention() {
  return System{SymmetricPower<P>{}, stationary()};
}

/// Gated symmetric power attention: S_i = γ_i S_{i-1} + v_i φ^P(k_i)ᵀ. retention: `power_retention` with `log_G` = log
/// γ. Throws `InvalidGate`. Source: Conformal Transformations, §3.1.
template <int P, class LogGates>
[[nodiscard]] auto gated_sympow(const Eigen::DenseBase<LogGates>& log_gamma) {
  return System{SymmetricPower<P>{}, decay(log_gamma)};
}

/// Gates and learned rotations: S_i = γ_i S_{i-1} Symᴾ(R(β_i θ)) + v_i φ^P(k_i)ᵀ. No peer implements it. Throws
/// `InvalidGate`, `NotFinite`. Source: Conformal Transformations, §3.3.
template <int P, class LogGates, class Angles, class Rates>
[[nodiscard]] auto conformal_sympow(const Eigen::DenseBase<LogGates>& log_gamma, const Eigen::DenseBase<Angles>& theta,
                                    const Eigen::DenseBase<Rates>& beta, Pairing pairing) {
  return System{SymmetricPower<P>{}, decay(log_gamma) * rotary(theta, beta, pairing)};
}

}  // namespace SYMPOW_NAMESPACE::systems
