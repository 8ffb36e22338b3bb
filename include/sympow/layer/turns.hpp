// Recipes that turn keys: learned rotary positions, and chains of Householder reflections.
#pragma once

#include <cmath>

#include <sympow/layer/recipe.hpp>
#include <sympow/systems/peer_parameters.hpp>
#include <sympow/transition/householder.hpp>
#include <sympow/transition/rotary.hpp>

namespace SYMPOW_NAMESPACE {

/// Learned rotary: every token chooses how far it turns.
///
///     β_t = 1 + tanh(w·x_t),   μ_t = μ_{t-1} + β_t θ
///
/// w = W_β of a head, one logit a token; θ: d/2 radians, fixed. Source: Conformal Transformations, §3.2.
class LearnedRotary : public WritesAsProjected {
 public:
  /// By these θ, in planes of this pairing.
  template <class Angles>
  explicit LearnedRotary(const Eigen::DenseBase<Angles>& theta, Pairing pairing)
      : theta_(theta.derived().matrix().template cast<double>().reshaped()), pairing_(pairing) {}

  [[nodiscard]] Index logits(Index) const { return 1; }
  template <class Scalar>
  [[nodiscard]] Rotary transition(const HeadTokens<Scalar>& x) const {
    return rotary(theta_, logit_of(x).unaryExpr([](double z) { return 1 + std::tanh(z); }), pairing_);
  }
  template <class Scalar>
  void transition_vjp(const HeadTokens<Scalar>& x, const Rotary::Gradient& g, HeadTokensGradient<Scalar>& dx) const {
    const auto slope = [](double z) { return 1 / (std::cosh(z) * std::cosh(z)); };
    dx.logits = g.beta.cwiseProduct(logit_of(x).unaryExpr(slope)).transpose().template cast<Scalar>();
  }

 private:
  Eigen::VectorXd theta_;
  Pairing pairing_;
};

namespace detail {

/// dx of u = x / max(‖x‖, least) by columns, from du: (du - u (u·du)) / ‖x‖.
template <class X, class DU>
[[nodiscard]] Matrix<double> unit_columns_vjp(const X& x, const DU& du, double least = 1e-12) {
  Matrix<double> dx = du.template cast<double>();
  for (Index t = 0; t < x.cols(); ++t) {
    const Vector<double> column = x.col(t).template cast<double>();
    const double length = column.stableNorm();
    if (length > least) dx.col(t) -= column * (column.dot(dx.col(t)) / length / length);
    dx.col(t) /= std::max(length, least);
  }
  return dx;
}

}  // namespace detail

/// The delta rule: a token takes what the state has at its key, and puts its value there.
///
///     k̂_t = k_t / ‖k_t‖,   β_t = σ(w·x_t),   A_t = I - β_t k̂_t k̂_tᵀ,   written: k̂_t, β_t v_t
///
/// One logit a token. With `ForgetGate` it is a Gated DeltaNet, with `ChannelGate` before it Kimi Delta Attention.
/// Source: Parallelizing Linear Transformers with the Delta Rule (2024).
struct DeltaRule {
  static constexpr bool writes = true;

  [[nodiscard]] Index logits(Index) const { return 1; }
  [[nodiscard]] Index parameters(Index) const { return 0; }
  void initialize(Index, Index, Index, auto) const {}
  template <class Scalar>
  [[nodiscard]] auto transition(const HeadTokens<Scalar>& x) const {
    return householder(systems::unit_columns(x.keys), strengths(x));
  }
  template <class Scalar>
  void write(const HeadTokens<Scalar>& x, typename Heads<Scalar>::Head keys,
             typename Heads<Scalar>::Head values) const {
    keys = systems::unit_columns(x.keys);
    values = systems::delta_rule_values(x.values, strengths(x));
  }
  template <class Scalar, class Gradient>
  void transition_vjp(const HeadTokens<Scalar>& x, const Gradient& g, HeadTokensGradient<Scalar>& dx) const {
    const Eigen::VectorXd beta = strengths(x);
    const Eigen::VectorXd d_beta =
        g.beta + dx.values.cwiseProduct(x.values).colwise().sum().transpose().template cast<double>();
    dx.logits =
        d_beta.cwiseProduct(beta).cwiseProduct(systems::sigmoid(-logit_of(x))).transpose().template cast<Scalar>();
    dx.values *= beta.template cast<Scalar>().asDiagonal();
    dx.keys = detail::unit_columns_vjp(x.keys, dx.keys.template cast<double>() + g.w.template cast<double>())
                  .template cast<Scalar>();
  }

 private:
  template <class Scalar>
  static Eigen::VectorXd strengths(const HeadTokens<Scalar>& x) {
    return systems::sigmoid(logit_of(x));
  }
};

/// Reflections along directions of their own: the positions of PaTH.
///
///     A_t = I - β_t w_t w_tᵀ,   w_t = W x_t / ‖W x_t‖,   β_t = 2 σ(u·x_t)
///
/// d + 1 logits a token, β's the last; W is d × d_model a head, in PaTH a product of two thin ones before a
/// convolution. With `ForgetGate` it is PaTH-FoX. Source: PaTH Attention (2025).
struct Reflections : WritesAsProjected {
  [[nodiscard]] Index logits(Index d) const { return d + 1; }
  template <class Scalar>
  [[nodiscard]] auto transition(const HeadTokens<Scalar>& x) const {
    return householder(systems::unit_columns(directions(x)), 2 * strengths(x));
  }
  template <class Scalar, class Gradient>
  void transition_vjp(const HeadTokens<Scalar>& x, const Gradient& g, HeadTokensGradient<Scalar>& dx) const {
    const Index d = x.keys.rows();
    const Eigen::VectorXd slope = 2 * strengths(x).cwiseProduct(systems::sigmoid(-logit_of(x, d)));
    dx.logits.topRows(d) = detail::unit_columns_vjp(directions(x), g.w).template cast<Scalar>();
    dx.logits.row(d) = g.beta.cwiseProduct(slope).transpose().template cast<Scalar>();
  }

 private:
  template <class Scalar>
  static auto directions(const HeadTokens<Scalar>& x) {
    return x.logits.topRows(x.keys.rows());
  }
  template <class Scalar>
  static Eigen::VectorXd strengths(const HeadTokens<Scalar>& x) {
    return systems::sigmoid(logit_of(x, x.keys.rows()));
  }
};

}  // namespace SYMPOW_NAMESPACE
