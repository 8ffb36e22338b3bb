// Every linear system beside its softmax dual, which is the same transition under exp, with what this machine finds of
// both.
#pragma once

#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <sympow/core/random.hpp>
#include <sympow/rotation/frequencies.hpp>
#include <sympow/systems/linear_systems.hpp>
#include <sympow/systems/peer_parameters.hpp>
#include <sympow/systems/softmax_systems.hpp>
#include <sympow/verify/form_laws.hpp>
#include "propositions/dense.hpp"

namespace SYMPOW_NAMESPACE::verify {

/// What the literature calls a linear system and its dual.
struct DualityNames {
  std::string system;      ///< the linear system
  std::string recurrence;  ///< S_i, S being S_{i-1}
  std::string dual;        ///< the softmax attention
  std::string transition;  ///< of both, as this library writes it
};

/// A linear system beside its dual. Residuals are in units of the row rule: up to 1 is rounding.
struct Duality {
  DualityNames names;      ///< what both are called
  std::string forms;       ///< that the system has; a softmax has the attention form alone
  FormResiduals residual;  ///< of the linear system
  Residual softmax{0, 1};  ///< of the dual's attention, from exp of the linear system's logits in double

  /// No residual is beyond 1.
  [[nodiscard]] bool holds() const { return residual.worst().holds() && softmax.holds(); }
};

/// A linear system and a softmax attention that is said to be its dual, on the same queries and keys.
///
///     S_i = S_{i-1} A_i + v_i φ(k_i)ᵀ   ↔   softmax of q_iᵀ M_ij k_j + log b_ij,   b_ij M_ij = (A_{j+1} … A_i)ᵀ
///
/// b and M of the definition are those of the linear system for both; so a dual with another transition is found out.
/// `written` are the values of the linear system, those of the delta rule being β_i v_i. Q, K: d × T; V, written: e ×
/// T. Cost: two `direct_attention`s and the forms. Throws `ShapeMismatch`. Source: On the Legacy of Linear Transformers
/// in Positional Embeddings.
template <FeatureMap F, Transition A, Transition B, class DQ, class DK, class DV, class DW>
[[nodiscard]] Duality duality(DualityNames names, const systems::System<F, A>& system,
                              const systems::System<Exponential, B>& dual, const Eigen::MatrixBase<DQ>& Q,
                              const Eigen::MatrixBase<DK>& K, const Eigen::MatrixBase<DV>& V,
                              const Eigen::MatrixBase<DW>& written) {
  const auto& [feature, transition] = system;
  const auto linear = direct_attention(feature, transition, Q, K, written),
             softmax = direct_attention(dual.feature, transition, Q, K, V);
  return {std::move(names), FiniteFeatureMap<F> ? "all three" : "attention",
          form_residuals(linear, feature, transition, Q, K, written),
          form_residuals(softmax, dual.feature, dual.transition, Q, K, V).worst()};
}

/// All ten, on random tokens of this seed in arithmetic of the given scalar type. Gates and strengths are made as peers
/// make them; 500 tokens are more than two blocks of the attention form and not a multiple of the chunk.
template <class Scalar>
[[nodiscard]] std::vector<Duality> dualities(std::uint64_t seed) {
  constexpr Index d = 16, e = 8, T = 500, head = 3;
  constexpr double A_log = -2, dt_bias = 0;
  Random random(seed);
  const Matrix<Scalar> Q = random.matrix<Scalar>(d, T), K = systems::unit_columns(random.matrix<Scalar>(d, T)),
                       V = random.matrix<Scalar>(e, T);
  DenseVector<double> beta = systems::sigmoid(random.vector(T));
  beta *= 2;
  const DenseVector<double> log_gamma = systems::mamba2_log_gates(random.vector(T), A_log, dt_bias),
                            theta = rope_frequencies<double>(d);
  DenseVector<double> rates(T);
  for (double& rate : rates) rate = 1 + std::tanh(random.normal());
  const Eigen::MatrixXd log_a = systems::gla_log_gates(random.matrix(d, T));
  const double gamma = systems::retnet_gamma(head);
  const Matrix<Scalar> delta = systems::delta_rule_values(V, beta);

  std::vector<Duality> table;
  const auto add = [&](DualityNames names, const auto& system, const auto& dual, const Matrix<Scalar>& written) {
    table.push_back(duality(std::move(names), system, dual, Q, K, V, written));
  };
  add({"linear attention", "S + v kᵀ", "NoPE", "stationary()"}, systems::linear_attention(), systems::nope(), V);
  add({"RetNet", "γ S + v kᵀ", "ALiBi", "constant_decay(γ)"}, systems::retnet(gamma), systems::alibi(-std::log(gamma)),
      V);
  add({"Mamba-2", "γ_i S + v kᵀ", "FoX", "decay(log γ)"}, systems::mamba2(log_gamma), systems::fox(log_gamma), V);
  const auto gla = systems::gla(log_a);
  add({"GLA", "S diag(a_i) + v kᵀ", "FoX by channel", "channel_decay(log a)"}, gla, systems::dual(gla), V);
  add({"complex gate", "S R(θ) + v kᵀ", "RoPE", "rotary(θ)"}, systems::complex_gate(theta, Pairing::interleaved),
      systems::rope(theta, Pairing::interleaved), V);
  add({"DeltaNet", "S (I - β_i k kᵀ) + β_i v kᵀ", "PaTH", "householder(k, β)"}, systems::delta_net(K, beta),
      systems::path(K, beta), delta);
  add({"Gated DeltaNet", "γ_i S (I - β_i k kᵀ) + β_i v kᵀ", "PaTH-FoX", "decay(log γ) * householder(k, β)"},
      systems::gated_delta_net(K, beta, log_gamma), systems::path_fox(K, beta, log_gamma, 1), delta);
  add({"sympow", "S + v φ(k)ᵀ", "NoPE", "stationary()"}, systems::sympow_attention<2>(), systems::nope(), V);
  add({"gated sympow", "γ_i S + v φ(k)ᵀ", "FoX", "decay(log γ)"}, systems::gated_sympow<2>(log_gamma),
      systems::fox(log_gamma), V);
  const auto conformal = systems::conformal_sympow<2>(log_gamma, theta, rates, Pairing::interleaved);
  add({"conformal-sympow", "γ_i S Sym²(R(β_i θ)) + v φ(k)ᵀ", "FoX, learned RoPE", "decay(log γ) * rotary(θ, β)"},
      conformal, systems::dual(conformal), V);
  return table;
}

}  // namespace SYMPOW_NAMESPACE::verify
