// Scalar decay gates, which scale the state. Channel gates are in channel_decay.hpp.
#pragma once

#include <cmath>
#include <limits>

#include <sympow/transition/channel_decay.hpp>
#include <sympow/transition/segment_vjp.hpp>

namespace SYMPOW_NAMESPACE {
namespace detail {
/// Throws `InvalidGate` for a log gate that no scores can have.
void check_log_gate(double log_gamma, const auto&... name) {
  if (std::isnan(log_gamma) || log_gamma == std::numeric_limits<double>::infinity())
    raise<InvalidGate>(name..., " is ", log_gamma, log_gate_rule);
}
}  // namespace detail

/// A_i = I, no decay and no rotation. Linear attention ↔ softmax without positions (NoPE).
struct Stationary : KeepsKeys {
  [[nodiscard]] Index length() const { return Dynamic; }
  [[nodiscard]] double log_decay(Index) const { return 0; }

  struct Gradient {};  ///< no parameters
  [[nodiscard]] Gradient zero_gradient(Index) const { return {}; }
  void add_decay_flows(Segment, const double*, Gradient&) const {}
  [[nodiscard]] Stationary part(Segment) const { return {}; }
  void join(const Gradient&, Segment, Gradient&) const {}
};

/// Identity transition, see `Stationary`.
[[nodiscard]] inline Stationary stationary() { return {}; }

/// A_i = γ I. RetNet ↔ ALiBi.
class ConstantDecay : public KeepsKeys {
 public:
  /// Throws `InvalidGate` unless 0 ≤ γ ≤ 1.
  explicit ConstantDecay(double gamma) : log_gamma_(std::log(gamma)) {
    if (!(0 <= gamma && gamma <= 1))
      detail::raise<InvalidGate>("constant_decay: gamma is ", gamma, ", must lie in [0, 1]");
  }
  /// From log γ, -∞ allowed; above 0 only under exponential scores, which calls check. Throws `InvalidGate`.
  [[nodiscard]] static ConstantDecay from_log(double log_gamma) {
    detail::check_log_gate(log_gamma, "constant_decay: log gamma");
    ConstantDecay result(1);
    result.log_gamma_ = log_gamma;
    return result;
  }
  [[nodiscard]] Index length() const { return Dynamic; }
  [[nodiscard]] double log_decay(Index) const { return log_gamma_; }

  /// Gradient with respect to the parameter.
  struct Gradient {
    double log_gamma = 0;  ///< ∂loss/∂log γ = γ ∂loss/∂γ, 0 at γ = 0
  };
  [[nodiscard]] Gradient zero_gradient(Index) const { return {}; }
  void add_decay_flows(Segment s, const double* flows, Gradient& g) const {
    for (Index i = 0; i < s.size; ++i) g.log_gamma += flows[i];
  }
  [[nodiscard]] ConstantDecay part(Segment) const { return *this; }
  void join(const Gradient& part, Segment, Gradient& whole) const { whole.log_gamma += part.log_gamma; }

 private:
  double log_gamma_;
};

/// A constant gate γ.
///
///     b_ij = γ^{i-j}
///
/// Throws `InvalidGate` unless γ lies in [0, 1]. Source: RetNet (2023); ALiBi in Conformal Transformations, A.2, with γ
/// = e^{-m}.
[[nodiscard]] inline ConstantDecay constant_decay(double gamma) { return ConstantDecay(gamma); }

/// A_i = γ_i I. Mamba-2, gated sympow ↔ FoX.
class Decay : public KeepsKeys {
 public:
  /// Log gates of -∞ are allowed, and above 0 under exponential scores alone, which calls check. Throws `InvalidGate`.
  explicit Decay(Eigen::VectorXd log_gamma) : log_gamma_(std::move(log_gamma)) {
    for (Index i = 0; i < log_gamma_.size(); ++i)
      detail::check_log_gate(log_gamma_[i], "decay: the log gate at position ", i);
  }
  [[nodiscard]] Index length() const { return log_gamma_.size(); }
  [[nodiscard]] double log_decay(Index token) const { return log_gamma_[token]; }

  /// Gradient with respect to the parameters.
  struct Gradient {
    Eigen::VectorXd log_gamma;  ///< ∂loss/∂log γ_t, T entries; 0 where γ_t = 0
  };
  [[nodiscard]] Gradient zero_gradient(Index tokens) const { return {Eigen::VectorXd::Zero(tokens)}; }
  void add_decay_flows(Segment s, const double* flows, Gradient& g) const {
    for (Index i = 0; i < s.size; ++i) g.log_gamma[s.begin + i] += flows[i];
  }
  [[nodiscard]] Decay part(Segment s) const { return Decay(log_gamma_.segment(s.begin, s.size)); }
  void join(const Gradient& part, Segment s, Gradient& whole) const {
    whole.log_gamma.segment(s.begin, s.size) += part.log_gamma;
  }

 private:
  Eigen::VectorXd log_gamma_;
};

/// A gate γ_i per token, as natural logarithms.
///
///     b_ij = Π_{k=j+1..i} γ_k = exp Σ_{k=j+1..i} log γ_k
///
/// log_gamma: T entries of any real type in a vector or array of either orientation, each ≤ 0, -∞ allowed; copied to
/// double. Under exponential scores, a bias of logits, they may be positive; other calls refuse that. γ_1 acts on the
/// initial state only. Compute log γ as -softplus(-x), not as log(sigmoid(x)). Throws `InvalidGate` with the position.
/// Source: Conformal Transformations, §3.1; Mamba-2 (2024).
template <class LogGates>
[[nodiscard]] Decay decay(const Eigen::DenseBase<LogGates>& log_gamma) {
  static_assert(LogGates::IsVectorAtCompileTime, "decay takes one log gate a token, in a vector");
  return Decay(log_gamma.derived().matrix().template cast<double>().reshaped());
}

/// Catch-all: explains invalid arguments at compile time.
template <class LogGates>
  requires(!requires(const LogGates& x) { x.derived(); })
Decay decay(const LogGates&) {
  static_assert(sizeof(LogGates) == 0,
                "decay takes the log gates in a vector or array of Eigen's: of a container or of memory give "
                "Eigen::Map<const Eigen::VectorXf>(data, T), or VectorXd; one gate for all is constant_decay(gamma)");
  return Decay({});
}

}  // namespace SYMPOW_NAMESPACE
