// Rotary positions: queries and keys rotate by an angle that accumulates over tokens.
#pragma once

#include <sympow/rotation/block_rotation.hpp>
#include <sympow/transition/flows.hpp>
#include <sympow/transition/segment_vjp.hpp>

namespace SYMPOW_NAMESPACE {

/// A_i = R(Σ_a β_ai θ_a), lifted. Complex gate ↔ RoPE; with data-dependent β the learned rotary of conformal-sympow; of
/// several axes a multidimensional one.
class Rotary {
 public:
  static constexpr KeyAction key_action = KeyAction::turn;

  /// Fixed frequencies of one axis, β = 1, of keys in R^d whose first 2 |θ| channels turn; d = 0: all of them. Throws
  /// `NotFinite`, `ShapeMismatch`.
  Rotary(const Eigen::VectorXd& theta, Pairing pairing, Index d = 0)
      : Rotary(Eigen::MatrixXd(theta), Eigen::MatrixXd(1, 0), pairing, d) {
    has_beta_ = false;
  }
  /// With the rates θ of n axes, |θ| × n, and their β, n × T, of one axis also a column. Throws the same.
  Rotary(Eigen::MatrixXd theta, Eigen::MatrixXd beta, Pairing pairing, Index d = 0)
      : theta_(std::move(theta)),
        beta_(theta_.cols() == 1 && beta.cols() == 1 ? Eigen::MatrixXd(beta.transpose()) : std::move(beta)),
        d_(d == 0 ? 2 * pairs() : d),
        pairing_(pairing) {
    detail::check_size("rotary: rows of beta", beta_.rows(), axes(), "axes of theta");
    if (axes() == 0) detail::raise<ShapeMismatch>("rotary: theta has no axis, must have one at least");
    check("theta", theta_), check("beta", beta_);
    if (d_ < 2 * pairs())
      detail::raise<ShapeMismatch>("rotary: d is ", d_, ", must be at least ", 2 * pairs(),
                                   ", two channels for each rate of theta");
  }

  [[nodiscard]] Index length() const { return has_beta_ ? beta_.cols() : Dynamic; }
  [[nodiscard]] Index key_dimension() const { return d_; }
  [[nodiscard]] double log_decay(Index) const { return 0; }
  /// β of a token and an axis, 1 at fixed frequencies.
  [[nodiscard]] double beta(Index token, Index axis = 0) const { return has_beta_ ? beta_(axis, token) : 1; }

  void check_frame(const Frame& frame, Index) const { frame.require(Frame::angles, pairs()); }

  [[nodiscard]] Eigen::MatrixXd key_matrix(Index token, Index) const {
    Eigen::MatrixXd R = Eigen::MatrixXd::Identity(d_, d_);
    for (Index j = 0; j < pairs(); ++j) {
      const Index first = is_half_split() ? j : 2 * j, second = is_half_split() ? j + pairs() : 2 * j + 1;
      double angle = 0;
      for (Index a = 0; a < axes(); ++a) angle = reduced_angle(angle + beta(token, a) * theta_(j, a));
      R(first, first) = R(second, second) = std::cos(angle);
      R(second, first) = std::sin(angle);
      R(first, second) = -R(second, first);
    }
    return R;
  }

  // Rotates queries and keys of token i by the absolute μ_i; their inner products depend on μ_i - μ_j.
  template <class S>
  void to_segment_frame(Frame& frame, Segment segment, Batch<S> queries, Batch<S> keys, Batch<S> logits) const {
    if (frame.empty()) frame.begin(Frame::angles, Eigen::VectorXd::Zero(pairs()));
    for (Index t = 0; t < segment.size; ++t)
      turn(frame.numbers(), segment.begin + t, 1, queries.col(t).data(), keys.col(t).data());
    if (logits.size() != 0) detail::set_causal_product(logits, keys, queries);
  }

  template <class S>
  void apply_to_queries(Segment, const Batch<S>&) const {}

  /// Gradient with respect to the parameters.
  struct Gradient {
    Eigen::VectorXd theta;  ///< ∂loss/∂θ, an entry per rate, axis after axis
    Eigen::VectorXd beta;   ///< ∂loss/∂β, n entries per token; empty at fixed frequencies
  };
  [[nodiscard]] Gradient zero_gradient(Index tokens) const {
    return {Eigen::VectorXd::Zero(theta_.size()), Eigen::VectorXd::Zero(has_beta_ ? axes() * tokens : 0)};
  }
  void add_decay_flows(Segment, const double*, Gradient&) const {}
  [[nodiscard]] Rotary part(Segment s) const {
    return has_beta_ ? Rotary(theta_, beta_.middleCols(s.begin, s.size), pairing_, d_) : *this;
  }
  void join(const Gradient& part, Segment s, Gradient& whole) const {
    whole.theta += part.theta;
    if (has_beta_) whole.beta.segment(axes() * s.begin, axes() * s.size) += part.beta;
  }

  // dβ_at = θ_a·F_t and dθ_a = Σ_t β_at F_t, with F_t the flow through token t, an entry per plane.
  template <class S>
  void to_segment_frame_vjp(Frame& frame, Segment segment, SegmentVjp<S>& x, Gradient& g) const {
    const auto add = [&](Index t, Index first, Index n, const double* flows) {
      const Index token = segment.begin + t;
      const Eigen::Map<const Eigen::VectorXd> F(flows, n);
      for (Index a = 0; a < axes(); ++a) {
        g.theta.segment(a * pairs() + first, n) += (x.unit * beta(token, a)) * F;
        if (has_beta_) g.beta[axes() * token + a] += x.unit * theta_.col(a).segment(first, n).dot(F);
      }
    };
    const Index turning = 2 * pairs(), still = d_ - turning;
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
    if (frame.empty()) frame.begin(Frame::angles, Eigen::VectorXd::Zero(pairs()));
    frame.numbers() *= -1;  // rotate back, with angles continuing from -μ
    for (Index t = 0; t < segment.size; ++t)
      turn(frame.numbers(), segment.begin + t, -1, x.d_queries.col(t).data(), x.d_keys.col(t).data());
    frame.numbers() *= -1;
  }
  template <class S>
  void apply_to_queries_vjp(Segment, const Batch<S>&, const Batch<S>&, double, Gradient&) const {}
  [[nodiscard]] Planes planes() const { return {pairs(), pairing_}; }  ///< planes of accumulating angles

 private:
  [[nodiscard]] Index pairs() const { return theta_.rows(); }
  [[nodiscard]] Index axes() const { return theta_.cols(); }
  [[nodiscard]] bool is_half_split() const { return pairing_ == Pairing::half_split; }
  // μ ← μ ± Σ_a β_a θ_a of a token, by which the query and the key turn.
  template <class S>
  void turn(Eigen::Map<Eigen::VectorXd> mu, Index token, double sign, S* query, S* key) const {
    const Index last = axes() - 1;
    for (Index a = 0; a < last; ++a)
      for (Index j = 0; j < pairs(); ++j) mu[j] = reduced_angle(mu[j] + sign * beta(token, a) * theta_(j, a));
    detail::advance_and_rotate(mu, theta_.col(last).data(), sign * beta(token, last), pairing_, query, key);
  }
  static void check(const char* name, const Eigen::MatrixXd& rates) {
    for (Index i = 0; i < rates.size(); ++i)
      if (!std::isfinite(rates.data()[i]))
        detail::raise<NotFinite>("rotary: ", name, " at position ", i, " is ", rates.data()[i], ", must be finite");
  }

  Eigen::MatrixXd theta_;  // rates of the pairs, a column per axis
  Eigen::MatrixXd beta_;
  Index d_;
  bool has_beta_ = true;
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
/// β: T entries, usually 1 + tanh(·) in (0, 2); `d` as above. Of n axes, θ: n × d/2 and β: n × T, token i rotates by
/// Σ_a β_ai θ_a: β is then what coordinate a of a position grows by, as in images, or M-RoPE, whose axes share the
/// pairs (θ is 0 elsewhere). Throws the same, and `ShapeMismatch` for other axes. Source: Conformal Transformations,
/// §3.2 (which prints +c_ij, and β_i under the sum; see docs/errata.md); Qwen2-VL (2024), §2.1.
template <class Angles, class Rates>
[[nodiscard]] Rotary rotary(const Eigen::DenseBase<Angles>& theta, const Eigen::DenseBase<Rates>& beta, Pairing pairing,
                            Index d = 0) {
  const auto axes_of = [](const auto& x) -> Eigen::MatrixXd {
    if constexpr (std::remove_cvref_t<decltype(x)>::IsVectorAtCompileTime)
      return x.matrix().template cast<double>().reshaped(1, x.size());
    else
      return x.matrix().template cast<double>();
  };
  return Rotary(axes_of(theta.derived()).transpose(), axes_of(beta.derived()), pairing, d);
}

}  // namespace SYMPOW_NAMESPACE
