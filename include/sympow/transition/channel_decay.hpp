// Forgetting by channel: gates that act in key space.
#pragma once

#include <algorithm>
#include <cmath>
#include <numbers>

#include <sympow/core/blocks.hpp>
#include <sympow/core/exponential.hpp>
#include <sympow/transition/flows.hpp>
#include <sympow/transition/halves.hpp>
#include <sympow/transition/running_gates.hpp>
#include <sympow/transition/transport_vjp.hpp>

namespace SYMPOW_NAMESPACE {

/// A_i = diag(a_i), kept as Real, which is float or double. GLA ↔ per-channel FoX.
template <class Real>
class ChannelDecay {
 public:
  static constexpr KeyAction key_action = KeyAction::scale;
  static constexpr bool checks_channels = true;

  /// Throws `InvalidGate` as `Decay` does.
  explicit ChannelDecay(Matrix<Real> log_a) : log_a_(std::move(log_a)) {
    for (Index t = 0; t < log_a_.cols(); ++t) {
      for (Index c = 0; c < log_a_.rows(); ++c)
        if (!(log_a_(c, t) <= 0))
          detail::raise<InvalidGate>("channel_decay: the log gate of channel ", c, " at token ", t, " is ",
                                     log_a_(c, t), ", must be at most 0 and a number");
      if (log_a_.rows() > 0) slowest_decay_ += static_cast<double>(log_a_.col(t).maxCoeff());
    }
    sums_.resize(log_a_.rows(), log_a_.cols() / summed);
    for (Index s = 0; s < sums_.cols(); ++s)
      sums_.col(s) = log_a_.middleCols(s * summed, summed).template cast<double>().rowwise().sum();
  }

  [[nodiscard]] Index length() const { return log_a_.cols(); }
  [[nodiscard]] Index key_dimension() const { return log_a_.rows(); }
  [[nodiscard]] double log_decay(Index) const { return 0; }
  void check_frame(const Frame& frame, Index d) const { LeavesKeys{}.check_frame(frame, d); }
  [[nodiscard]] Eigen::MatrixXd key_matrix(Index token, Index) const;

  /// The sum of a segment's log gates by channel, into d numbers.
  void log_channel_totals(Segment segment, Eigen::VectorXd& totals) const;
  /// Σ_t max_c log a_tc.
  [[nodiscard]] double slowest_decay() const { return slowest_decay_; }
  /// a_t / max_c a_tc, and the largest of each token, by their logarithms; where all are closed, all are left open.
  [[nodiscard]] ChannelDecay beside_slowest(Eigen::VectorXd& slowest) const;
  template <class S>
  void transport(Frame&, Segment segment, Batch<S> queries, Batch<S> keys, Batch<S> logits) const;
  /// The middle of a segment, which is cut until no channel decays below 2^-40 or one token is left.
  [[nodiscard]] Index middle(Segment segment) const;
  /// With G_i = Σ log a from the segment's start through token i, e^{G_i - G_j} is e^{G_i} e^{-G_j}, both gates being
  /// at least 2^-40.
  template <class S>
  void transport_piece(Segment segment, Batch<S> queries, Batch<S> keys, Batch<S> logits) const;
  template <class S>
  void pull(Segment segment, Batch<S> queries) const {
    multiply_by_total<S>(segment, 1, queries);
  }
  /// A diagonal is its own transpose.
  template <class S>
  void push(Segment segment, Batch<S> keys) const {
    pull<S>(segment, keys);
  }

  /// Of the parameters.
  struct Gradient {
    Eigen::MatrixXd log_a;  ///< ∂loss/∂log a, d × T, a sum of many terms and so in double; 0 where a = 0
  };
  [[nodiscard]] Gradient zero_gradient(Index tokens) const { return {Eigen::MatrixXd::Zero(log_a_.rows(), tokens)}; }
  void add_decay_flows(Segment, const double*, Gradient&) const {}
  [[nodiscard]] ChannelDecay part(Segment s) const { return ChannelDecay(log_a_.middleCols(s.begin, s.size)); }
  void join(const Gradient& part, Segment s, Gradient& whole) const {
    whole.log_a.middleCols(s.begin, s.size) += part.log_a;
  }
  template <class S>
  void transport_vjp(Frame&, Segment segment, TransportVjp<S>& x, Gradient& g) const;
  template <class S>
  void pull_vjp(Segment segment, Batch<S> X, Batch<S> dX, double unit, Gradient& g) const;

 private:
  static constexpr Index summed = 16;  // tokens
  // Numbers of a block of channels.
  template <class S, class Count>
  using Channels = Eigen::Array<S, detail::block_size<Count>, 1, 0, std::max(detail::block_size<Count>, 16), 1>;

  // f(first, count) for blocks of channels.
  template <class F>
  void for_channels(F&& f) const {
    detail::for_blocks<64, 16>(log_a_.rows(), f);
  }

  // x ← e^{±Σ log a} x of a segment.
  template <class S>
  void multiply_by_total(Segment segment, double sign, Batch<S> x) const;

  // q_i ← e^{G_i} q_i and k_i ← e^{-G_i} k_i.
  template <class S>
  void apply_gates(Segment segment, Batch<S> queries, Batch<S> keys) const;

  // The way back through a part of a segment, from gradients of its queries at its start and its keys at its end.
  template <class S, class Flows>
  void add_part(Segment part, Index first, TransportVjp<S>& x, Flows& flows) const;

  // Σ log a of a segment for some channels.
  template <class Count>
  [[nodiscard]] auto sum(Segment segment, Index first, Count count) const {
    Channels<double, Count> totals(count);
    totals.setZero();
    for (Index t = segment.begin; t < segment.end();) {
      const bool all = t % summed == 0 && t + summed <= segment.end();
      if (all)
        totals += sums_.col(t / summed).segment(first, count).array();
      else
        totals += log_a_.col(t).segment(first, count).array().template cast<double>();
      t += all ? summed : 1;
    }
    return totals;
  }

  Matrix<Real> log_a_;
  Matrix<double> sums_;  // of `summed` columns each
  double slowest_decay_ = 0;
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
  for_channels([&](Index first, auto count) { totals.segment(first, count) = sum(segment, first, count).matrix(); });
}

template <class Real>
ChannelDecay<Real> ChannelDecay<Real>::beside_slowest(Eigen::VectorXd& slowest) const {
  slowest.resize(length());
  Matrix<Real> rest = log_a_;
  for (Index t = 0; t < length(); ++t) {
    const Real largest = key_dimension() == 0 ? Real(0) : log_a_.col(t).maxCoeff();
    slowest[t] = largest;
    if (std::isfinite(largest))
      rest.col(t).array() -= largest;
    else
      rest.col(t).setZero();
  }
  return ChannelDecay(std::move(rest));
}

template <class Real>
template <class S>
void ChannelDecay<Real>::transport(Frame&, Segment segment, Batch<S> queries, Batch<S> keys, Batch<S> logits) const {
  detail::transport_by_halves<S>(*this, segment, queries, keys, logits);
}

template <class Real>
Index ChannelDecay<Real>::middle(Segment segment) const {
  constexpr double least = -40 * std::numbers::ln2;
  bool moderate = true;
  for_channels([&](Index first, auto count) { moderate = moderate && (sum(segment, first, count) >= least).all(); });
  return moderate ? segment.begin : segment.begin + segment.size / 2;
}

template <class Real>
template <class S>
void ChannelDecay<Real>::apply_gates(Segment segment, Batch<S> queries, Batch<S> keys) const {
  for_channels([&](Index first, auto count) {
    auto totals = sum({segment.begin, 0}, first, count);
    for (Index t = 0; t < segment.size; ++t) {
      detail::prefetch_column(log_a_.middleRows(first, count), segment.end() + t);
      if (t % summed == 0) detail::prefetch_column(sums_.middleRows(first, count), (segment.end() + t) / summed);
      detail::apply_running_gates(&queries(first, t), &keys(first, t), totals.data(), &log_a_(first, segment.begin + t),
                                  count);
    }
  });
}

template <class Real>
template <class S>
void ChannelDecay<Real>::transport_piece(Segment segment, Batch<S> queries, Batch<S> keys, Batch<S> logits) const {
  if (segment.size == 1) {
    if (logits.size() != 0) logits(0, 0) = queries.col(0).dot(keys.col(0));
    return pull<S>(segment, queries);
  }
  apply_gates<S>(segment, queries, keys);
  if (logits.size() != 0) detail::set_causal_product(logits, keys, queries);
  pull<S>(segment, keys);
}

template <class Real>
template <class S>
void ChannelDecay<Real>::multiply_by_total(Segment segment, double sign, Batch<S> x) const {
  for_channels([&](Index first, auto count) {
    auto exact = (sign * sum(segment, first, count)).eval();
    detail::set_exponential(exact, exact);
    const auto gates = exact.template cast<S>().eval();
    for (Index t = 0; t < x.cols(); ++t) x.col(t).segment(first, count).array() *= gates;
  });
}

// What passes the ends of the segment flows by its moved queries and keys; then these hold those of a part, in the
// coordinates of its middle or, where it is a piece, of e^{G_i}, to which those of the whole segment need no more than
// its decay.
template <class Real>
template <class S>
void ChannelDecay<Real>::transport_vjp(Frame&, Segment segment, TransportVjp<S>& x, Gradient& g) const {
  const auto add = [&](Index t, Index first, Index n, const double* flows) {
    g.log_a.col(segment.begin + t).segment(first, n) += x.unit * Eigen::Map<const Eigen::VectorXd>(flows, n);
  };
  detail::PairFlows<S, decltype(add)> flows({detail::Coupling::channels, key_dimension()}, x.moved_queries,
                                            x.moved_keys, x.d_logits, x.d_queries, x.d_keys, add);
  flows.add_passing(x.through);
  add_part(segment, 0, x, flows);
}

template <class Real>
template <class S, class Flows>
void ChannelDecay<Real>::add_part(Segment part, Index first, TransportVjp<S>& x, Flows& flows) const {
  const Index n = part.size, half = middle(part) - part.begin, rest = n - half;
  if (n == 0) return;
  const auto columns = [&](Batch<S>& of, Index from, Index count) -> Batch<S> {
    return of.middleCols(first + from, count);
  };
  auto Q = columns(x.moved_queries, 0, n), K = columns(x.moved_keys, 0, n);
  const bool is_near = half == 0 && n > 1 && n == x.moved_keys.cols();
  if (is_near)
    multiply_by_total<S>(part, -1, K);
  else
    Q = columns(x.queries, 0, n), K = columns(x.keys, 0, n);
  if (half > 0) {
    const Segment left{part.begin, half}, right{part.begin + half, rest};
    detail::transport_by_halves<S>(*this, left, Q.leftCols(half), K.leftCols(half), no_logits<S>());
    detail::transport_by_halves<S>(*this, right, Q.rightCols(rest), K.rightCols(rest), no_logits<S>());
    pull<S>(left, columns(x.d_queries, half, rest));
    pull<S>(right, columns(x.d_keys, 0, half));
    if (x.d_logits.size() != 0) flows.add_across(first, first + half, first + n);
    add_part(left, first, x, flows);
    return add_part(right, first + half, x, flows);
  }
  const auto dQ = columns(x.d_queries, 0, n), dK = columns(x.d_keys, 0, n);
  if (n > 1 && !is_near) apply_gates<S>(part, Q, K);
  pull<S>(part, n == 1 ? dQ : dK);
  if (x.d_logits.size() != 0) flows.add_pairs(first, first + n);
  if (n > 1) apply_gates<S>(part, dQ, dK);
}

template <class Real>
template <class S>
void ChannelDecay<Real>::pull_vjp(Segment segment, Batch<S> X, Batch<S> dX, double unit, Gradient& g) const {
  pull<S>(segment, dX);
  for_channels([&](Index first, auto count) {
    auto flow = sum({segment.begin, 0}, first, count);
    for (Index i = 0; i < X.cols(); ++i)
      flow += X.col(i).segment(first, count).array().template cast<double>() *
              dX.col(i).segment(first, count).array().template cast<double>();
    for (Index t = segment.begin; t < segment.end(); ++t) g.log_a.col(t).segment(first, count).array() += unit * flow;
  });
}

/// A gate for every token and channel of the keys, by natural logarithms.
///
///     M_ij = diag exp Σ_{k=j+1..i} log a_k
///
/// log_a: d × T, each ≤ 0, -∞ allowed; floats are kept as floats, which is half of what a pass reads, others are copied
/// into double; sums are double. It acts in key space and is lifted: on `SymmetricPower<P>` equal channels γ decay a
/// score by γ^P, and with `Exponential` the gate scales the logit. Cost of a segment of n tokens: one pass over its
/// queries and keys and the products, and up to log2(n) passes where channels decay below 2^-40 in it. Throws
/// `InvalidGate`. Source: Gated Linear Attention (2023).
template <class LogGates>
[[nodiscard]] auto channel_decay(const Eigen::DenseBase<LogGates>& log_a) {
  using Real = std::conditional_t<std::is_same_v<typename LogGates::Scalar, float>, float, double>;
  return ChannelDecay<Real>(log_a.derived().matrix().template cast<Real>());
}

}  // namespace SYMPOW_NAMESPACE

/// Gates by channel that are kept as Real: with `extern` they are compiled elsewhere, with nothing here.
#define SYMPOW_CHANNEL_DECAY(LINKAGE, Real)      \
  namespace sympow {                             \
  LINKAGE template class ChannelDecay<Real>;     \
  SYMPOW_CHANNEL_DECAY_OF(LINKAGE, Real, float)  \
  SYMPOW_CHANNEL_DECAY_OF(LINKAGE, Real, double) \
  }
#define SYMPOW_CHANNEL_DECAY_OF(LINKAGE, Real, S)                                                              \
  LINKAGE template void ChannelDecay<Real>::transport(Frame&, Segment, Batch<S>, Batch<S>, Batch<S>) const;    \
  LINKAGE template void ChannelDecay<Real>::pull(Segment, Batch<S>) const;                                     \
  LINKAGE template void ChannelDecay<Real>::transport_vjp(Frame&, Segment, TransportVjp<S>&, Gradient&) const; \
  LINKAGE template void ChannelDecay<Real>::pull_vjp(Segment, Batch<S>, Batch<S>, double, Gradient&) const;

#ifdef SYMPOW_COMPILED_FORMS
SYMPOW_CHANNEL_DECAY(extern, float)
SYMPOW_CHANNEL_DECAY(extern, double)
#endif
