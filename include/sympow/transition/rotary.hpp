// Rotary positions: queries and keys rotate by an angle that accumulates over tokens.
#pragma once

#include <sympow/rotation/block_rotation.hpp>
#include <sympow/transition/flows.hpp>
#include <sympow/transition/segment_vjp.hpp>

namespace SYMPOW_NAMESPACE {

/// A_i = R(β_i θ), lifted. Complex gate ↔ RoPE; with data-dependent β the learned rotary of conformal-sympow.
class Rotary {
 public:
  static constexpr KeyAction key_action = KeyAction::turn;

  /// Fixed frequencies, β = 1, of keys in R^d whose first 2 |θ| channels turn; d = 0: all of them. Throws `NotFinite`,
  /// `ShapeMismatch`.
  Rotary(Eigen::VectorXd theta, Pairing pairing, Index d = 0)
      : theta_(std::move(theta)), d_(d == 0 ? 2 * theta_.size() : d), pairing_(pairing) {
    check("theta", theta_);
    if (d_ < 2 * theta_.size())
      detail::raise<ShapeMismatch>("rotary: d is ", d_, ", must be at least ", 2 * theta_.size(),
                                   ", two channels for each rate of theta");
  }
  /// With a rate β per token. Throws the same.
  Rotary(Eigen::VectorXd theta, Eigen::VectorXd beta, Pairing pairing, Index d = 0)
      : Rotary(std::move(theta), pairing, d) {
    beta_ = std::move(beta), has_beta_ = true;
    check("beta", beta_);
  }

  [[nodiscard]] Index length() const { return has_beta_ ? beta_.size() : Dynamic; }
  [[nodiscard]] Index key_dimension() const { return d_; }
  [[nodiscard]] double log_decay(Index) const { return 0; }
  /// β of a token, 1 at fixed frequencies.
  [[nodiscard]] double beta(Index token) const { return has_beta_ ? beta_[token] : 1; }

  void check_frame(const Frame& frame, Index) const { frame.require(Frame::angles, theta_.size()); }

  [[nodiscard]] Eigen::MatrixXd key_matrix(Index token, Index) const {
    const Index pairs = theta_.size();
    Eigen::MatrixXd R = Eigen::MatrixXd::Identity(d_, d_);
    for (Index j = 0; j < pairs; ++j) {
      const Index first = is_half_split() ? j : 2 * j, second = is_half_split() ? j + pairs : 2 * j + 1;
      const double angle = reduced_angle(beta(token) * theta_[j]);
      R(first, first) = R(second, second) = std::cos(angle);
      R(second, first) = std::sin(angle);
      R(first, second) = -R(second, first);
    }
    return R;
  }

  // Rotates queries and keys of token i by the absolute μ_i; their inner products depend on μ_i - μ_j.
  template <class S>
  void to_segment_frame(Frame& frame, Segment segment, Batch<S> queries, Batch<S> keys, Batch<S> logits) const {
    if (frame.empty()) frame.begin(Frame::angles, Eigen::VectorXd::Zero(theta_.size()));
    for (Index t = 0; t < segment.size; ++t)
      detail::advance_and_rotate(frame.numbers(), theta_.data(), beta(segment.begin + t), pairing_,
                                 queries.col(t).data(), keys.col(t).data());
    if (logits.size() != 0) detail::set_causal_product(logits, keys, queries);
  }

  template <class S>
  void apply_to_queries(Segment, const Batch<S>&) const {}

  /// Gradient with respect to the parameters.
  struct Gradient {
    Eigen::VectorXd theta;  ///< ∂loss/∂θ, an entry per rate
    Eigen::VectorXd beta;   ///< ∂loss/∂β, T entries; empty at fixed frequencies
  };
  [[nodiscard]] Gradient zero_gradient(Index tokens) const {
    return {Eigen::VectorXd::Zero(theta_.size()), Eigen::VectorXd::Zero(has_beta_ ? tokens : 0)};
  }
  void add_decay_flows(Segment, const double*, Gradient&) const {}
  [[nodiscard]] Rotary part(Segment s) const {
    return has_beta_ ? Rotary(theta_, beta_.segment(s.begin, s.size), pairing_, d_) : *this;
  }
  void join(const Gradient& part, Segment s, Gradient& whole) const {
    whole.theta += part.theta;
    if (has_beta_) whole.beta.segment(s.begin, s.size) += part.beta;
  }

  // dβ_t = θ·F_t and dθ = Σ_t β_t F_t, with F_t the flow through token t, an entry per plane.
  template <class S>
  void to_segment_frame_vjp(Frame& frame, Segment segment, SegmentVjp<S>& x, Gradient& g) const {
    const auto add = [&](Index t, Index first, Index n, const double* flows) {
      const Index token = segment.begin + t;
      const Eigen::Map<const Eigen::VectorXd> F(flows, n);
      g.theta.segment(first, n) += (x.unit * beta(token)) * F;
      if (has_beta_) g.beta[token] += x.unit * theta_.segment(first, n).dot(F);
    };
    const Index turning = 2 * theta_.size(), still = d_ - turning;
    if (still > 0)
      detail::add_causal_pairs<S>(x.moved_queries.bottomRows(still), x.moved_keys.bottomRows(still), x.d_logits,
                                  x.d_queries.bottomRows(still), x.d_keys.bottomRows(still));
    detail::PairFlows<S, decltype(add)> flows(detail::coupling_of(planes()), x.moved_queries.topRows(turning),
                                              x.moved_keys.topRows(turning), x.d_logits, x.d_queries.topRows(turning),
                                              x.d_keys.topRows(turning), add);
    if (x.is_absolute) {
      flows.add_absolute(x.through);
    } else {
      flows.add_boundary(x.through);
      if (x.d_logits.size() != 0) flows.add_pairs(0, segment.size);
    }
    if (frame.empty()) frame.begin(Frame::angles, Eigen::VectorXd::Zero(theta_.size()));
    frame.numbers() *= -1;  // rotate back, with angles continuing from -μ
    for (Index t = 0; t < segment.size; ++t)
      detail::advance_and_rotate(frame.numbers(), theta_.data(), -beta(segment.begin + t), pairing_,
                                 x.d_queries.col(t).data(), x.d_keys.col(t).data());
    frame.numbers() *= -1;
  }
  template <class S>
  void apply_to_queries_vjp(Segment, const Batch<S>&, const Batch<S>&, double, Gradient&) const {}
  [[nodiscard]] Planes planes() const { return {theta_.size(), pairing_}; }  ///< planes of accumulating angles

 private:
  [[nodiscard]] bool is_half_split() const { return pairing_ == Pairing::half_split; }
  static void check(const char* name, const Eigen::VectorXd& rates) {
    for (Index i = 0; i < rates.size(); ++i)
      if (!std::isfinite(rates[i]))
        detail::raise<NotFinite>("rotary: ", name, " at position ", i, " is ", rates[i], ", must be finite");
  }

  Eigen::VectorXd theta_, beta_;
  Index d_;
  bool has_beta_ = false;
  Pairing pairing_;
};

/// Rotary positions at fixed frequencies.
///
///     M_ij = R(μ_i)ᵀ R(μ_j),   μ_i = μ_{i-1} + θ
///
/// θ: radians per token, stored in double, d/2 of them or, if `d` is given, r/2 for r ≤ d: then the first r channels
/// turn, paired among themselves, and the others stay (`rotary_dim` of GPT-NeoX and others). μ is reduced mod 2π at
/// every step and continues from the state's frame. Accepts every T. Throws `NotFinite`, `ShapeMismatch` for r > d.
/// Source: Conformal Transformations, A.1.2; RoFormer (2021).
template <class Angles>
[[nodiscard]] Rotary rotary(const Eigen::DenseBase<Angles>& theta, Pairing pairing, Index d = 0) {
  static_assert(Angles::IsVectorAtCompileTime, "rotary takes d/2 rates, in a vector");
  return Rotary(theta.derived().matrix().template cast<double>().reshaped(), pairing, d);
}

/// Learned rotary positions: token i rotates by β_i θ.
///
///     M_ij = R(μ_i)ᵀ R(μ_j) = R(-c_ij θ),   μ_i = μ_{i-1} + β_i θ,   c_ij = Σ_{k=j+1..i} β_k
///
/// β: T entries, usually 1 + tanh(·) in (0, 2); `d` as above. Throws the same. Source: Conformal Transformations, §3.2
/// (which prints +c_ij, and β_i under the sum; see docs/errata.md).
template <class Angles, class Rates>
[[nodiscard]] Rotary rotary(const Eigen::DenseBase<Angles>& theta, const Eigen::DenseBase<Rates>& beta, Pairing pairing,
                            Index d = 0) {
  static_assert(Angles::IsVectorAtCompileTime && Rates::IsVectorAtCompileTime,
                "rotary takes d/2 rates and T betas, in vectors");
  return Rotary(theta.derived().matrix().template cast<double>().reshaped(),
                beta.derived().matrix().template cast<double>().reshaped(), pairing, d);
}

}  // namespace SYMPOW_NAMESPACE
