// What happens between two tokens: how the state forgets (b) and how keys turn (M). The protocol that every transition
// follows.
//
//     (A_{j+1} … A_i)ᵀ = b_ij M_ij          A_i acts on the state from the right: S_i = S_{i-1} A_i + v_i φ(k_i)ᵀ
//
// The forms work by segments of consecutive tokens a … b. A query is taken to its segment's start, q̃_i = A_a … A_i
// q_i; a key to its segment's end, k̂_j = (A_{j+1} … A_b)ᵀ k_j; then the logit of a query and a key of an earlier
// segment is q̃ᵀ k̂, once q̃ has been pulled through the segments between. A rotation does this in absolute coordinates
// instead, R(μ) on both, and needs no pulling.
#pragma once

#include <concepts>

#include <sympow/core/checks.hpp>
#include <sympow/core/concepts.hpp>
#include <sympow/core/product.hpp>
#include <sympow/core/resize.hpp>
#include <sympow/transition/frame.hpp>
#include <sympow/transition/key_action.hpp>

namespace SYMPOW_NAMESPACE {

/// Consecutive tokens of a call, counted from 0.
struct Segment {
  Index begin = 0;
  Index size = 0;
  [[nodiscard]] constexpr Index end() const { return begin + size; }
};

/// Logits of a segment are not wanted.
template <class Scalar>
[[nodiscard]] Batch<Scalar> no_logits() {
  return Eigen::Map<Matrix<Scalar>>(nullptr, 0, 0);
}

/// An immutable recipe of A_1 … A_T, T = `length()`. A type models it with
///
///     static constexpr KeyAction key_action;       what A_i does beside scalar decay
///     Index length() const;                        T, or Dynamic if it fits every length
///     Index key_dimension() const;                 d, or Dynamic if it fits every d
///     double log_decay(Index i) const;             log γ_i ≤ 0 of the scalar part, -∞ allowed; calls refuse others
///     void check_frame(const Frame&, Index d) const;           throws `FrameMismatch`
///     void transport(Frame& frame, Segment s, Batch<S> Q, Batch<S> K, Batch<S> logits) const;
///                                                  logits(j, i) = q_iᵀ M_ij k_j for j ≤ i in s unless logits is empty;
///                                                  then Q to the segment's start, K and the frame to its end
///     void pull(Segment s, Batch<S> Q) const;      Q ← A_a … A_b Q
///     MatrixXd key_matrix(Index i, Index d) const; the part of A_i in key space, dense; the definition, for tests
///
/// and beside these, if it is to move a state (without them it has the attention form only):
///
///     void log_channel_totals(Segment s, VectorXd&) const;    KeyAction::scale: Σ log a, d numbers
///     static constexpr bool checks_channels = true;           each log a ≤ 0, so that calls need not look
///     void push(Segment s, Batch<S> K) const;                 KeyAction::mix: K ← (A_a … A_b)ᵀ K
///     void advance(Segment s, Batch<S> X) const;              KeyAction::mix: X ← X A_a … A_b
///
/// What mixes may lengthen keys: the row rule is promised for contractions, and states grow until the type ends.
/// Scalar decay is no concern of `transport`, `pull` and `key_matrix`: the forms apply it to scores and states, in
/// double. What a transition brings to have gradients is said in transport_vjp.hpp.
template <class A>
concept Transition = requires(const A& a, Frame& frame, Segment s, Index i, Batch<double> X) {
  { A::key_action } -> std::convertible_to<KeyAction>;
  { a.length() } -> std::convertible_to<Index>;
  { a.key_dimension() } -> std::convertible_to<Index>;
  { a.log_decay(i) } -> std::convertible_to<double>;
  { a.key_matrix(i, i) } -> std::convertible_to<Eigen::MatrixXd>;
  a.check_frame(frame, i);
  a.transport(frame, s, X, X, X);
  a.pull(s, X);
};

namespace detail {

template <class A, class S = double>
concept HasPush = requires(const A& a, Segment s, Batch<S> X) { a.push(s, X); };
template <class A, class S = double>
concept HasAdvance = requires(const A& a, Segment s, Batch<S> X) { a.advance(s, X); };
template <class A>
concept HasChannelTotals =
    requires(const A& a, Segment s, Eigen::VectorXd& totals) { a.log_channel_totals(s, totals); };

/// Whether the log gates by channel of a transition need no check of calls.
template <class A>
inline constexpr bool has_checked_channels = [] {
  if constexpr (requires { A::checks_channels; })
    return static_cast<bool>(A::checks_channels);
  else
    return A::key_action != KeyAction::scale;
}();

}  // namespace detail

/// A transition that can move a state.
template <class A>
concept MovesStates =
    Transition<A> && (A::key_action != KeyAction::mix || (detail::HasPush<A> && detail::HasAdvance<A>)) &&
    (A::key_action != KeyAction::scale || detail::HasChannelTotals<A>);

template <class S>
struct TransportVjp;

/// Base of the transitions that leave keys as they are.
struct LeavesKeys {
  static constexpr KeyAction key_action = KeyAction::none;

  [[nodiscard]] Index key_dimension() const { return Dynamic; }
  [[nodiscard]] Eigen::MatrixXd key_matrix(Index, Index d) const { return Eigen::MatrixXd::Identity(d, d); }

  void check_frame(const Frame& frame, Index) const { frame.require(); }

  template <class S>
  void transport(Frame&, Segment, const Batch<S>& queries, const Batch<S>& keys, Batch<S> logits) const {
    if (logits.size() != 0) detail::set_causal_product(logits, keys, queries);
  }

  template <class S>
  void pull(Segment, const Batch<S>&) const {}

  template <class S, class Gradient>
  void transport_vjp(Frame&, Segment, TransportVjp<S>& x, Gradient&) const;
  template <class S, class Gradient>
  void pull_vjp(Segment, const Batch<S>&, const Batch<S>&, double, Gradient&) const {}
};

/// A transition of any type behind one interface, so that an engine is compiled once per scalar and feature map. One
/// virtual call a segment. It refers to the transition and does not own it.
template <class Scalar>
class TransitionView {
 public:
  TransitionView() = default;
  TransitionView(const TransitionView&) = delete;
  TransitionView& operator=(const TransitionView&) = delete;
  virtual ~TransitionView() = default;

  [[nodiscard]] virtual double log_decay(Index token) const = 0;
  /// `log_decay` of the tokens of a segment.
  virtual void log_decays(Segment segment, double* of_tokens) const = 0;
  virtual void transport(Frame& frame, Segment segment, Batch<Scalar> queries, Batch<Scalar> keys,
                         Batch<Scalar> logits) const = 0;
  virtual void pull(Segment segment, Batch<Scalar> queries) const = 0;
  [[nodiscard]] virtual KeyAction key_action() const = 0;
  /// The next three do nothing where the transition has no such thing.
  virtual void log_channel_totals(Segment segment, Eigen::VectorXd& totals) const = 0;
  virtual void push(Segment segment, Batch<Scalar> keys) const = 0;
  virtual void advance(Segment segment, Batch<Scalar> X) const = 0;
};

namespace detail {

template <class Scalar, Transition A>
class ViewOf final : public TransitionView<Scalar> {
 public:
  explicit ViewOf(const A& transition) : transition_(transition) {}

  [[nodiscard]] double log_decay(Index token) const override { return transition_.log_decay(token); }
  void log_decays(Segment segment, double* of_tokens) const override {
    for (Index i = 0; i < segment.size; ++i) of_tokens[i] = transition_.log_decay(segment.begin + i);
  }
  void transport(Frame& frame, Segment segment, Batch<Scalar> queries, Batch<Scalar> keys,
                 Batch<Scalar> logits) const override {
    transition_.transport(frame, segment, queries, keys, logits);
  }
  void pull(Segment segment, Batch<Scalar> queries) const override { transition_.pull(segment, queries); }
  [[nodiscard]] KeyAction key_action() const override { return A::key_action; }
  void log_channel_totals([[maybe_unused]] Segment segment, [[maybe_unused]] Eigen::VectorXd& totals) const override {
    if constexpr (A::key_action == KeyAction::scale && MovesStates<A>) {
      detail::resize_anew(totals, transition_.key_dimension());
      transition_.log_channel_totals(segment, totals);
    }
  }
  void push([[maybe_unused]] Segment segment, [[maybe_unused]] Batch<Scalar> keys) const override {
    if constexpr (A::key_action == KeyAction::mix && MovesStates<A>) transition_.push(segment, keys);
  }
  void advance([[maybe_unused]] Segment segment, [[maybe_unused]] Batch<Scalar> X) const override {
    if constexpr (A::key_action == KeyAction::mix && MovesStates<A>) transition_.advance(segment, X);
  }

 private:
  const A& transition_;
};

}  // namespace detail
}  // namespace SYMPOW_NAMESPACE
