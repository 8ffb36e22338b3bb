// Recipes that forget: gates which every token chooses.
#pragma once

#include <cmath>

#include <sympow/layer/recipe.hpp>
#include <sympow/systems/peer_parameters.hpp>
#include <sympow/transition/decay.hpp>

namespace SYMPOW_NAMESPACE {

/// A scalar gate: that of gated sympow and of FoX.
///
///     log γ_t = log σ(w·x_t + b) = -softplus(-(w·x_t + b))
///
/// w = W_γ of a head, one logit a token; b is learned. Source: Conformal Transformations, §3.1, and the papers' code,
/// which has b.
class ForgetGate : public WritesAsProjected {
 public:
  /// `bias` is what b begins with: 6.9 makes γ = .999.
  explicit ForgetGate(double bias = 6.9) : bias_(bias) {}

  [[nodiscard]] Index logits(Index) const { return 1; }
  [[nodiscard]] Index parameters(Index) const { return 1; }
  template <class P>
  void initialize(Index, Index, Index, P p) const {
    p[0] = static_cast<typename P::Scalar>(bias_);
  }
  template <class Scalar>
  [[nodiscard]] Decay transition(const HeadTokens<Scalar>& x) const {
    return decay(systems::log_sigmoid(shifted(x)));
  }
  template <class Scalar>
  void transition_vjp(const HeadTokens<Scalar>& x, const Decay::Gradient& g, HeadTokensGradient<Scalar>& dx) const {
    const Eigen::VectorXd dz = g.log_gamma.cwiseProduct(systems::sigmoid(-shifted(x)));
    dx.logits = dz.transpose().template cast<Scalar>();
    dx.parameters[0] += static_cast<Scalar>(dz.sum());
  }

 private:
  template <class Scalar>
  static Eigen::VectorXd shifted(const HeadTokens<Scalar>& x) {
    return logit_of(x).array() + static_cast<double>(x.parameters[0]);
  }

  double bias_;
};

/// A gate for every channel of the key: that of GLA.
///
///     log a_t = log σ(W x_t + b) / τ
///
/// d logits a token; W is d × d_model a head, in GLA a product of two thin ones; b is learned, from 0 on. Source:
/// Gated Linear Attention (2023).
class ChannelGate : public WritesAsProjected {
 public:
  /// Throws `InvalidArgument` unless τ > 0.
  explicit ChannelGate(double tau = 16) : tau_(tau) {
    if (!(tau > 0)) detail::raise<InvalidArgument>("channel gate: tau is ", tau, ", must be positive");
  }

  [[nodiscard]] Index logits(Index d) const { return d; }
  [[nodiscard]] Index parameters(Index d) const { return d; }
  template <class P>
  void initialize(Index, Index, Index, P p) const {
    p.setZero();
  }
  template <class Scalar>
  [[nodiscard]] auto transition(const HeadTokens<Scalar>& x) const {
    return channel_decay(systems::gla_log_gates(shifted(x), tau_));
  }
  template <class Scalar, class Gradient>
  void transition_vjp(const HeadTokens<Scalar>& x, const Gradient& g, HeadTokensGradient<Scalar>& dx) const {
    const Eigen::MatrixXd dz = g.log_a.cwiseProduct(systems::sigmoid(-shifted(x))) / tau_;
    dx.logits = dz.template cast<Scalar>();
    dx.parameters += dz.rowwise().sum().template cast<Scalar>();
  }

 private:
  template <class Scalar>
  static Eigen::MatrixXd shifted(const HeadTokens<Scalar>& x) {
    return x.logits.template cast<double>().colwise() + x.parameters.template cast<double>();
  }

  double tau_;
};

/// Steps of a size that tokens choose: the gate of Mamba-2, with Q = C, K = B and V = x.
///
///     Δ_t = softplus(w·x_t + b),   log γ_t = -e^A Δ_t,   written: Δ_t v_t
///
/// One logit a token; b and A are learned, and begin such that over the heads Δ = .001 … .1 and e^A = 1 … 16. The
/// convolution and the skip of the published layer are no part of it. Source: Transformers are SSMs (2024).
struct SelectiveStep {
  static constexpr bool writes = true;

  [[nodiscard]] Index logits(Index) const { return 1; }
  [[nodiscard]] Index parameters(Index) const { return 2; }
  template <class P>
  void initialize(Index head, Index heads, Index, P p) const {
    const double part = heads > 1 ? static_cast<double>(head) / static_cast<double>(heads - 1) : 0;
    const double step = std::pow(10., 2 * part - 3);
    p[0] = static_cast<typename P::Scalar>(step + std::log(-std::expm1(-step)));  // whose softplus is the step
    p[1] = static_cast<typename P::Scalar>(std::log1p(15 * part));
  }
  template <class Scalar>
  [[nodiscard]] Decay transition(const HeadTokens<Scalar>& x) const {
    return decay(systems::mamba2_log_gates(x.logits, x.parameters[1], x.parameters[0]));
  }
  template <class Scalar>
  void write(const HeadTokens<Scalar>& x, typename Heads<Scalar>::Head keys,
             typename Heads<Scalar>::Head values) const {
    keys = x.keys;
    values = systems::delta_rule_values(x.values, steps(x));
  }
  template <class Scalar>
  void transition_vjp(const HeadTokens<Scalar>& x, const Decay::Gradient& g, HeadTokensGradient<Scalar>& dx) const {
    const Eigen::VectorXd step = steps(x), d_log_gamma = std::exp(static_cast<double>(x.parameters[1])) * g.log_gamma;
    const Eigen::VectorXd d_step = dx.values.cwiseProduct(x.values).colwise().sum().transpose().template cast<double>();
    const Eigen::VectorXd shifted = logit_of(x).array() + static_cast<double>(x.parameters[0]);
    const Eigen::VectorXd dz = (d_step - d_log_gamma).cwiseProduct(systems::sigmoid(shifted));
    dx.logits = dz.transpose().template cast<Scalar>();
    dx.parameters[0] += static_cast<Scalar>(dz.sum());
    dx.parameters[1] -= static_cast<Scalar>(step.dot(d_log_gamma));
    dx.values *= step.template cast<Scalar>().asDiagonal();
  }

 private:
  template <class Scalar>
  static Eigen::VectorXd steps(const HeadTokens<Scalar>& x) {
    return systems::mamba2_steps(x.logits, x.parameters[0]);
  }
};

}  // namespace SYMPOW_NAMESPACE
