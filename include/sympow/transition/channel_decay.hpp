// Channel decay: a gate per key channel.
#pragma once

#include <algorithm>
#include <cmath>

#include <sympow/simd/blocks.hpp>
#include <sympow/simd/exponential.hpp>
#include <sympow/transition/divide_and_conquer.hpp>
#include <sympow/transition/flows.hpp>
#include <sympow/transition/running_gates.hpp>
#include <sympow/transition/segment_vjp.hpp>

namespace SYMPOW_NAMESPACE {

/// A_i = diag(a_i), stored as Real (float or double). GLA ↔ per-channel FoX.
template <class Real>
class ChannelDecay {
 public:
  static constexpr KeyAction key_action = KeyAction::scale;
  static constexpr bool checks_channels = true;

  /// Throws `InvalidGate` unless every log gate is ≤ 0.
  explicit ChannelDecay(Matrix<Real> log_a) : log_a_(std::move(log_a)) {
    for (Index t = 0; t < log_a_.cols(); ++t) {
      for (Index c = 0; c < log_a_.rows(); ++c)
        if (!(log_a_(c, t) <= 0))
          detail::raise<InvalidGate>("channel_decay: the log gate of channel ", c, " at token ", t, " is ",
                                     log_a_(c, t), detail::log_gate_rule);
      if (log_a_.rows() > 0) total_max_log_gate_ += static_cast<double>(log_a_.col(t).maxCoeff());
    }
    sums_.resize(log_a_.rows(), log_a_.cols() / tokens_per_sum);
    for (Index s = 0; s < sums_.cols(); ++s)
      sums_.col(s) = log_a_.middleCols(s * tokens_per_sum, tokens_per_sum).template cast<double>().rowwise().sum();
  }

  [[nodiscard]] Index length() const { return log_a_.cols(); }
  [[nodiscard]] Index key_dimension() const { return log_a_.rows(); }
  [[nodiscard]] double log_decay(Index) const { return 0; }
  [[nodiscard]] const Matrix<Real>& log_gates() const { return log_a_; }  ///< log a, d × T
  void check_frame(const Frame& frame, Index d) const { KeepsKeys{}.check_frame(frame, d); }
  [[nodiscard]] Eigen::MatrixXd key_matrix(Index token, Index) const;

  /// Σ_t log a_t over a segment, d entries.
  void log_channel_totals(Segment segment, Eigen::VectorXd& totals) const;
  /// Σ_t max_c log a_tc.
  [[nodiscard]] double total_max_log_gate() const { return total_max_log_gate_; }
  /// Factors out the largest gate of each token: returns a_t / max_c a_tc and sets `slowest` to max_c log a_tc. A token
  /// with all gates closed gets open gates.
  [[nodiscard]] ChannelDecay factor_out_max_gate(Eigen::VectorXd& slowest) const;
  template <class S>
  void to_segment_frame(Frame&, Segment segment, Batch<S> queries, Batch<S> keys, Batch<S> logits) const;
  /// Where to split a segment: at its middle, or at its begin if no channel decays below 2^-40 over it or it has one
  /// token.
  [[nodiscard]] Index split_point(Segment segment) const;
  /// Transports a leaf: e^{G_i - G_j} = e^{G_i} e^{-G_j} with G_i = Σ log a from the leaf's start through i; both
  /// factors lie in [2^-40, 2^40].
  template <class S>
  void move_leaf(Segment segment, Batch<S> queries, Batch<S> keys, Batch<S> logits) const;
  template <class S>
  void apply_to_queries(Segment segment, Batch<S> queries) const {
    multiply_by_total<S>(segment, 1, queries);
  }
  /// Equals `apply_to_queries`, because A is diagonal.
  template <class S>
  void apply_to_keys(Segment segment, Batch<S> keys) const {
    apply_to_queries<S>(segment, keys);
  }

  /// Gradient with respect to the parameters.
  struct Gradient {
    Eigen::MatrixXd log_a;  ///< ∂loss/∂log a, d × T; double because it sums many terms; 0 where a = 0
  };
  [[nodiscard]] Gradient zero_gradient(Index tokens) const { return {Eigen::MatrixXd::Zero(log_a_.rows(), tokens)}; }
  void add_decay_flows(Segment, const double*, Gradient&) const {}
  [[nodiscard]] ChannelDecay part(Segment s) const { return ChannelDecay(log_a_.middleCols(s.begin, s.size)); }
  void join(const Gradient& part, Segment s, Gradient& whole) const {
    whole.log_a.middleCols(s.begin, s.size) += part.log_a;
  }
  template <class S>
  void to_segment_frame_vjp(Frame&, Segment segment, SegmentVjp<S>& x, Gradient& g) const;
  template <class S>
  void apply_to_queries_vjp(Segment segment, Batch<S> X, Batch<S> dX, double unit, Gradient& g) const;

 private:
  static constexpr Index tokens_per_sum = 16;  // tokens per partial sum
  // An array for a block of channels.
  template <class S, class Count>
  using Channels = Eigen::Array<S, detail::block_size<Count>, 1, 0, std::max(detail::block_size<Count>, 16), 1>;

  // Calls f(first, count) for blocks of channels.
  template <class F>
  void for_channels(F&& f) const {
    detail::for_blocks<64, 16>(log_a_.rows(), f);
  }

  // x ← e^{±Σ log a} x over a segment.
  template <class S>
  void multiply_by_total(Segment segment, double sign, Batch<S> x) const;

  // q_i ← e^{G_i} q_i and k_i ← e^{-G_i} k_i.
  template <class S>
  void apply_gates(Segment segment, Batch<S> queries, Batch<S> keys) const;

  // Backpropagates through a part of a segment, given the gradients of its queries at its start and its keys at its
  // end.
  template <class S, class Flows>
  void backprop_part(Segment part, Index first, SegmentVjp<S>& x, Flows& flows) const;

  // Σ log a over a segment for `count` channels.
  template <class Count>
  [[nodiscard]] auto log_total(Segment segment, Index first, Count count) const {
    Channels<double, Count> totals(count);
    totals.setZero();
    for (Index t = segment.begin; t < segment.end();) {
      const bool whole_sum = t % tokens_per_sum == 0 && t + tokens_per_sum <= segment.end();
      if (whole_sum)
        totals += sums_.col(t / tokens_per_sum).segment(first, count).array();
      else
        totals += log_a_.col(t).segment(first, count).array().template cast<double>();
      t += whole_sum ? tokens_per_sum : 1;
    }
    return totals;
  }

  Matrix<Real> log_a_;
  Matrix<double> sums_;  // sums over `tokens_per_sum` tokens
  double total_max_log_gate_ = 0;
};

template <class Real>
Eigen::MatrixXd ChannelDecay<Real>::key_matrix(Index token, Index) const {
  const Index d = key_dimension();
  Eigen::MatrixXd A = Eigen::MatrixXd::Zero(d, d);
  for (Index c = 0; c < d; ++c) A(c, c) = std::exp(static_cast<double>(log_a_(c, token)));
  return A;
}

template <class Real>
void ChannelDecay<Real>::log_channel_totals(Segment segment, Eigen::VectorXd& totals) const {
  for_channels(
      [&](Index first, auto count) { totals.segment(first, count) = log_total(segment, first, count).matrix(); });
}

template <class Real>
ChannelDecay<Real> ChannelDecay<Real>::factor_out_max_gate(Eigen::VectorXd& slowest) const {
  slowest.resize(length());
  Matrix<Real> reduced = log_a_;
  for (Index t = 0; t < length(); ++t) {
    const Real largest = key_dimension() == 0 ? Real(0) : log_a_.col(t).maxCoeff();
    slowest[t] = largest;
    if (std::isfinite(largest))
      reduced.col(t).array() -= largest;
    else
      reduced.col(t).setZero();
  }
  return ChannelDecay(std::move(reduced));
}

template <class Real>
template <class S>
void ChannelDecay<Real>::to_segment_frame(Frame&, Segment segment, Batch<S> queries, Batch<S> keys,
                                          Batch<S> logits) const {
  detail::move_recursively<S>(*this, segment, queries, keys, logits);
}

template <class Real>
Index ChannelDecay<Real>::split_point(Segment segment) const {
  bool is_leaf = true;
  for_channels([&](Index first, auto count) {
    is_leaf = is_leaf && (log_total(segment, first, count) >= detail::least_divisor_log).all();
  });
  return is_leaf ? segment.begin : segment.begin + segment.size / 2;
}

template <class Real>
template <class S>
void ChannelDecay<Real>::apply_gates(Segment segment, Batch<S> queries, Batch<S> keys) const {
  for_channels([&](Index first, auto count) {
    auto totals = log_total({segment.begin, 0}, first, count);
    for (Index t = 0; t < segment.size; ++t) {
      detail::prefetch_column(log_a_.middleRows(first, count), segment.end() + t);
      if (t % tokens_per_sum == 0)
        detail::prefetch_column(sums_.middleRows(first, count), (segment.end() + t) / tokens_per_sum);
      detail::apply_running_gates(&queries(first, t), &keys(first, t), totals.data(), &log_a_(first, segment.begin + t),
                                  count);
    }
  });
}

template <class Real>
template <class S>
void ChannelDecay<Real>::move_leaf(Segment segment, Batch<S> queries, Batch<S> keys, Batch<S> logits) const {
  if (segment.size == 1) {
    if (logits.size() != 0) logits(0, 0) = queries.col(0).dot(keys.col(0));
    return apply_to_queries<S>(segment, queries);
  }
  apply_gates<S>(segment, queries, keys);
  if (logits.size() != 0) detail::set_causal_product(logits, keys, queries);
  apply_to_queries<S>(segment, keys);
}

template <class Real>
template <class S>
void ChannelDecay<Real>::multiply_by_total(Segment segment, double sign, Batch<S> x) const {
  for_channels([&](Index first, auto count) {
    auto factors = (sign * log_total(segment, first, count)).eval();
    detail::set_exponential(factors, factors);
    const auto gates = factors.template cast<S>().eval();
    for (Index t = 0; t < x.cols(); ++t) x.col(t).segment(first, count).array() *= gates;
  });
}

// Flows across the segment's ends come from its transported queries and keys. These are then overwritten per part, in
// the coordinates of its split point, or of e^{G_i} for a leaf. If the whole segment is a leaf, undoing its total decay
// suffices.
template <class Real>
template <class S>
void ChannelDecay<Real>::to_segment_frame_vjp(Frame&, Segment segment, SegmentVjp<S>& x, Gradient& g) const {
  const auto add = [&](Index t, Index first, Index n, const double* flows) {
    g.log_a.col(segment.begin + t).segment(first, n) += x.unit * Eigen::Map<const Eigen::VectorXd>(flows, n);
  };
  detail::PairFlows<S, decltype(add)> flows({detail::Coupling::channels, key_dimension()}, x.moved_queries,
                                            x.moved_keys, x.d_logits, x.d_queries, x.d_keys, add);
  flows.add_boundary(x.through);
  backprop_part(segment, 0, x, flows);
}

template <class Real>
template <class S, class Flows>
void ChannelDecay<Real>::backprop_part(Segment part, Index first, SegmentVjp<S>& x, Flows& flows) const {
  const Index n = part.size, left_size = split_point(part) - part.begin, right_size = n - left_size;
  if (n == 0) return;
  const auto columns = [&](Batch<S>& batch, Index offset, Index count) -> Batch<S> {
    return batch.middleCols(first + offset, count);
  };
  auto Q = columns(x.moved_queries, 0, n), K = columns(x.moved_keys, 0, n);
  const bool is_whole_leaf = left_size == 0 && n > 1 && n == x.moved_keys.cols();
  if (is_whole_leaf)
    multiply_by_total<S>(part, -1, K);
  else
    Q = columns(x.queries, 0, n), K = columns(x.keys, 0, n);
  if (left_size > 0) {
    const Segment left{part.begin, left_size}, right{part.begin + left_size, right_size};
    detail::move_recursively<S>(*this, left, Q.leftCols(left_size), K.leftCols(left_size), no_logits<S>());
    detail::move_recursively<S>(*this, right, Q.rightCols(right_size), K.rightCols(right_size), no_logits<S>());
    apply_to_queries<S>(left, columns(x.d_queries, left_size, right_size));
    apply_to_queries<S>(right, columns(x.d_keys, 0, left_size));
    if (x.d_logits.size() != 0) flows.add_crossing(first, first + left_size, first + n);
    backprop_part(left, first, x, flows);
    return backprop_part(right, first + left_size, x, flows);
  }
  const auto dQ = columns(x.d_queries, 0, n), dK = columns(x.d_keys, 0, n);
  if (n > 1 && !is_whole_leaf) apply_gates<S>(part, Q, K);
  apply_to_queries<S>(part, n == 1 ? dQ : dK);
  if (x.d_logits.size() != 0) flows.add_pairs(first, first + n);
  if (n > 1) apply_gates<S>(part, dQ, dK);
}

template <class Real>
template <class S>
void ChannelDecay<Real>::apply_to_queries_vjp(Segment segment, Batch<S> X, Batch<S> dX, double unit,
                                              Gradient& g) const {
  apply_to_queries<S>(segment, dX);
  for_channels([&](Index first, auto count) {
    auto flow = log_total({segment.begin, 0}, first, count);
    for (Index i = 0; i < X.cols(); ++i)
      flow += X.col(i).segment(first, count).array().template cast<double>() *
              dX.col(i).segment(first, count).array().template cast<double>();
    for (Index t = segment.begin; t < segment.end(); ++t) g.log_a.col(t).segment(first, count).array() += unit * flow;
  });
}

/// A gate per token and key channel, as natural logarithms.
///
///     M_ij = diag exp Σ_{k=j+1..i} log a_k
///
/// log_a: d × T, each ≤ 0, -∞ allowed. Floats stay floats, which halves the bytes read; other types become double. Sums
/// are in double. Acts on keys and is lifted: with `SymmetricPower<P>` a common gate γ decays a score by γ^P; with
/// `Exponential` it scales the logit. Cost per segment of n tokens: one pass over queries and keys, the products, and
/// up to log2(n) passes if channels decay below 2^-40. Throws `InvalidGate`. Source: Gated Linear Attention (2023).
template <class LogGates>
[[nodiscard]] auto channel_decay(const Eigen::DenseBase<LogGates>& log_a) {
  using Real = std::conditional_t<std::is_same_v<typename LogGates::Scalar, float>, float, double>;
  return ChannelDecay<Real>(log_a.derived().matrix().template cast<Real>());
}

}  // namespace SYMPOW_NAMESPACE
