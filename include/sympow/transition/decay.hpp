// Forgetting: scalar gates, which multiply the state, and channel gates, which act in key space.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include <sympow/core/blocks.hpp>
#include <sympow/core/exponential.hpp>
#include <sympow/transition/halves.hpp>
#include <sympow/transition/running_gates.hpp>
#include <sympow/transition/transport_vjp.hpp>

namespace SYMPOW_NAMESPACE {
/// A_i = I: nothing is forgotten, nothing turns. Linear attention ↔ softmax without positions (NoPE).
struct Stationary : LeavesKeys {
  [[nodiscard]] Index length() const { return Dynamic; }
  [[nodiscard]] double log_decay(Index) const { return 0; }

  struct Gradient {};  ///< of no parameters
  [[nodiscard]] Gradient zero_gradient(Index) const { return {}; }
  void add_decay_flows(Segment, const double*, Gradient&) const {}
};

/// See `Stationary`.
[[nodiscard]] inline Stationary stationary() { return {}; }

/// A_i = γ I. RetNet ↔ ALiBi.
class ConstantDecay : public LeavesKeys {
 public:
  /// Throws `InvalidGate` unless 0 ≤ γ ≤ 1.
  explicit ConstantDecay(double gamma) : log_gamma_(std::log(gamma)) {
    if (!(0 <= gamma && gamma <= 1))
      detail::raise<InvalidGate>("constant_decay: gamma is ", gamma, ", must lie in [0, 1]");
  }
  /// By log γ ≤ 0 itself, -∞ allowed. Throws `InvalidGate`.
  [[nodiscard]] static ConstantDecay of_logarithm(double log_gamma) {
    if (!(log_gamma <= 0))
      detail::raise<InvalidGate>("constant_decay: log gamma is ", log_gamma, ", must be at most 0 and a number");
    ConstantDecay result(1);
    result.log_gamma_ = log_gamma;
    return result;
  }
  [[nodiscard]] Index length() const { return Dynamic; }
  [[nodiscard]] double log_decay(Index) const { return log_gamma_; }

  /// Of the parameter.
  struct Gradient {
    double log_gamma = 0;  ///< ∂loss/∂log γ = γ ∂loss/∂γ, 0 at γ = 0
  };
  [[nodiscard]] Gradient zero_gradient(Index) const { return {}; }
  void add_decay_flows(Segment s, const double* flows, Gradient& g) const {
    for (Index i = 0; i < s.size; ++i) g.log_gamma += flows[i];
  }

 private:
  double log_gamma_;
};

/// The same gate γ at every token.
///
///     b_ij = γ^{i-j}
///
/// γ in [0, 1]; throws `InvalidGate`. Source: RetNet (2023); ALiBi in Conformal Transformations, A.2, with γ = e^{-m}.
[[nodiscard]] inline ConstantDecay constant_decay(double gamma) { return ConstantDecay(gamma); }

/// A_i = γ_i I. Mamba-2, gated sympow ↔ FoX.
class Decay : public LeavesKeys {
 public:
  /// Throws `InvalidGate` for a log gate that is positive or not a number.
  explicit Decay(Eigen::VectorXd log_gamma) : log_gamma_(std::move(log_gamma)) {
    for (Index i = 0; i < log_gamma_.size(); ++i)
      if (!(log_gamma_[i] <= 0))
        detail::raise<InvalidGate>("decay: the log gate at position ", i, " is ", log_gamma_[i],
                                   ", must be at most 0 and a number");
  }
  [[nodiscard]] Index length() const { return log_gamma_.size(); }
  [[nodiscard]] double log_decay(Index token) const { return log_gamma_[token]; }

  /// Of the parameters.
  struct Gradient {
    Eigen::VectorXd log_gamma;  ///< ∂loss/∂log γ_t, T numbers, 0 where γ_t = 0
  };
  [[nodiscard]] Gradient zero_gradient(Index tokens) const { return {Eigen::VectorXd::Zero(tokens)}; }
  void add_decay_flows(Segment s, const double* flows, Gradient& g) const {
    for (Index i = 0; i < s.size; ++i) g.log_gamma[s.begin + i] += flows[i];
  }

 private:
  Eigen::VectorXd log_gamma_;
};

/// A gate γ_i for every token, by natural logarithms.
///
///     b_ij = Π_{k=j+1..i} γ_k = exp Σ_{k=j+1..i} log γ_k
///
/// log_gamma: T numbers in a vector or array of either orientation and any real type, each ≤ 0, -∞ allowed; they are
/// copied into double. γ_1 acts on the initial state only. Compute log γ as -softplus(-x), not as log(sigmoid(x)).
/// Throws `InvalidGate` with the position. Source: Conformal Transformations, §3.1; Mamba-2 (2024).
template <class LogGates>
[[nodiscard]] Decay decay(const Eigen::DenseBase<LogGates>& log_gamma) {
  static_assert(LogGates::IsVectorAtCompileTime, "decay takes one log gate a token, in a vector");
  return Decay(log_gamma.derived().matrix().template cast<double>().reshaped());
}

/// What is no vector of Eigen's, with a sentence.
template <class LogGates>
  requires(!requires(const LogGates& x) { x.derived(); })
Decay decay(const LogGates&) {
  static_assert(sizeof(LogGates) == 0,
                "decay takes the log gates in a vector or array of Eigen's: of a container or of memory give "
                "Eigen::Map<const Eigen::VectorXf>(data, T), or VectorXd; one gate for all is constant_decay(gamma)");
  return Decay({});
}

/// A_i = diag(a_i), kept as Real, which is float or double. GLA ↔ per-channel FoX.
template <class Real>
class ChannelDecay {
 public:
  static constexpr KeyAction key_action = KeyAction::scale;
  static constexpr bool checks_channels = true;

  /// Throws `InvalidGate` as `Decay` does.
  explicit ChannelDecay(Matrix<Real> log_a) : log_a_(std::move(log_a)) {
    for (Index t = 0; t < log_a_.cols(); ++t)
      for (Index c = 0; c < log_a_.rows(); ++c)
        if (!(log_a_(c, t) <= 0))
          detail::raise<InvalidGate>("channel_decay: the log gate of channel ", c, " at token ", t, " is ",
                                     log_a_(c, t), ", must be at most 0 and a number");
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
  template <class S>
  void transport(Frame&, Segment segment, Batch<S> queries, Batch<S> keys, Batch<S> logits) const;
  /// The middle of a segment, which is cut until no channel decays below 2^-40 or one token is left.
  [[nodiscard]] Index middle(Segment segment) const;
  /// With G_i = Σ log a from the segment's start through token i, e^{G_i - G_j} is e^{G_i} e^{-G_j}, both gates being
  /// at least 2^-40.
  template <class S>
  void transport_piece(Segment segment, Batch<S> queries, Batch<S> keys, Batch<S> logits) const;
  template <class S>
  void pull(Segment segment, Batch<S> queries) const;
  /// A diagonal is its own transpose.
  template <class S>
  void push(Segment segment, Batch<S> keys) const {
    pull<S>(segment, keys);
  }

 private:
  static constexpr Index summed = 16;  // tokens
  // Numbers of a block of channels.
  template <class S, class Count>
  using Channels = Eigen::Array<S, detail::block_size<Count>, 1, 0, std::max(detail::block_size<Count>, 16), 1>;

  // f(first, count) for blocks of channels, of 64 and then of 16.
  template <class F>
  void for_channels(F&& f) const {
    detail::for_blocks<64>(log_a_.rows(), [&](Index first, auto count) {
      if constexpr (std::is_same_v<decltype(count), Index>)
        detail::for_blocks<16>(count, [&](Index begin, auto some) { f(first + begin, some); });
      else
        f(first, count);
    });
  }

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
void ChannelDecay<Real>::transport_piece(Segment segment, Batch<S> queries, Batch<S> keys, Batch<S> logits) const {
  if (segment.size == 1) {
    if (logits.size() != 0) logits(0, 0) = queries.col(0).dot(keys.col(0));
    return pull<S>(segment, queries);
  }
  for_channels([&](Index first, auto count) {
    auto totals = sum({segment.begin, 0}, first, count);
    for (Index t = 0; t < segment.size; ++t) {
      detail::prefetch_column(log_a_.middleRows(first, count), segment.end() + t);
      if (t % summed == 0) detail::prefetch_column(sums_.middleRows(first, count), (segment.end() + t) / summed);
      detail::apply_running_gates(&queries(first, t), &keys(first, t), totals.data(), &log_a_(first, segment.begin + t),
                                  count);
    }
  });
  if (logits.size() != 0) detail::set_causal_product(logits, keys, queries);
  pull<S>(segment, keys);
}

template <class Real>
template <class S>
void ChannelDecay<Real>::pull(Segment segment, Batch<S> queries) const {
  for_channels([&](Index first, auto count) {
    auto exact = sum(segment, first, count);
    detail::set_exponential(exact, exact);
    const auto gates = exact.template cast<S>().eval();
    for (Index t = 0; t < queries.cols(); ++t) queries.col(t).segment(first, count).array() *= gates;
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
#define SYMPOW_CHANNEL_DECAY_OF(LINKAGE, Real, S)                                                           \
  LINKAGE template void ChannelDecay<Real>::transport(Frame&, Segment, Batch<S>, Batch<S>, Batch<S>) const; \
  LINKAGE template void ChannelDecay<Real>::pull(Segment, Batch<S>) const;

#ifdef SYMPOW_COMPILED_FORMS
SYMPOW_CHANNEL_DECAY(extern, float)
SYMPOW_CHANNEL_DECAY(extern, double)
#endif
