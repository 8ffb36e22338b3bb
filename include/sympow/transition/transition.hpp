// The transition between two tokens: scalar decay b and key map M. Defines the protocol of transitions.
//
//     (A_{j+1} … A_i)ᵀ = b_ij M_ij          A_i acts on the state from the right: S_i = S_{i-1} A_i + v_i φ(k_i)ᵀ
//
// The forms process segments of consecutive tokens a … b. A query moves to its segment's start, q̃_i = A_a … A_i q_i; a
// key moves to its segment's end, k̂_j = (A_{j+1} … A_b)ᵀ k_j. The logit of a query and an earlier segment's key is q̃ᵀ
// k̂, after `apply_to_queries` of q̃ through the segments between. Rotations use absolute coordinates instead, R(μ)
// on both, and need no `apply_to_queries`.
#pragma once

#include <concepts>
#include <memory>
#include <utility>

#include <sympow/core/checks.hpp>
#include <sympow/core/concepts.hpp>
#include <sympow/core/resize.hpp>
#include <sympow/simd/product.hpp>
#include <sympow/transition/frame.hpp>
#include <sympow/transition/key_action.hpp>

namespace SYMPOW_NAMESPACE {

/// Consecutive tokens of a call, 0-based.
struct Segment {
  Index begin = 0;
  Index size = 0;
  [[nodiscard]] constexpr Index end() const { return begin + size; }
};

/// An empty matrix: do not compute logits.
template <class Scalar>
[[nodiscard]] Batch<Scalar> no_logits() {
  return Eigen::Map<Matrix<Scalar>>(nullptr, 0, 0);
}

/// An immutable recipe of A_1 … A_T, T = `length()`. A type models it with
///
///     static constexpr KeyAction key_action;       how A_i acts on keys
///     Index length() const;                        T, or Dynamic for any length
///     Index key_dimension() const;                 d, or Dynamic for any d
///     double log_decay(Index i) const;             log γ_i ≤ 0 of the scalar decay, -∞ allowed; calls check it
///     void check_frame(const Frame&, Index d) const;           throws `FrameMismatch`
///     void to_segment_frame(Frame& frame, Segment s, Batch<S> Q, Batch<S> K, Batch<S> logits) const;
///                                                  logits(j, i) = q_iᵀ M_ij k_j for j ≤ i in s unless logits is empty;
///                                                  moves Q to the segment's start, K and the frame to its end
///     void apply_to_queries(Segment s, Batch<S> Q) const;      Q ← A_a … A_b Q
///     MatrixXd key_matrix(Index i, Index d) const; the dense factor of A_i on keys; its definition, for tests
///
/// To move a state it also needs the following; without them only the attention form accepts it.
///
///     void log_channel_totals(Segment s, VectorXd&) const;    KeyAction::scale: Σ log a, d entries
///     static constexpr bool checks_channels = true;           log a ≤ 0 is guaranteed; calls skip the check
///     void apply_to_keys(Segment s, Batch<S> K) const;                 KeyAction::mix: K ← (A_a … A_b)ᵀ K
///     void apply_to_state(Segment s, Batch<S> X) const;              KeyAction::mix: X ← X A_a … A_b
///
/// A mixing transition may lengthen keys; the row rule holds for contractions only, and states may overflow.
/// `to_segment_frame`, `apply_to_queries` and `key_matrix` exclude scalar decay: the forms apply it to scores and
/// states, in double. segment_vjp.hpp defines the protocol of gradients.
template <class A>
concept Transition = requires(const A& a, Frame& frame, Segment s, Index i, Batch<double> X) {
  { A::key_action } -> std::convertible_to<KeyAction>;
  { a.length() } -> std::convertible_to<Index>;
  { a.key_dimension() } -> std::convertible_to<Index>;
  { a.log_decay(i) } -> std::convertible_to<double>;
  { a.key_matrix(i, i) } -> std::convertible_to<Eigen::MatrixXd>;
  a.check_frame(frame, i);
  a.to_segment_frame(frame, s, X, X, X);
  a.apply_to_queries(s, X);
};

namespace detail {

template <class A, class S = double>
concept HasApplyToKeys = requires(const A& a, Segment s, Batch<S> X) { a.apply_to_keys(s, X); };
template <class A, class S = double>
concept HasApplyToState = requires(const A& a, Segment s, Batch<S> X) { a.apply_to_state(s, X); };
template <class A>
concept HasChannelTotals =
    requires(const A& a, Segment s, Eigen::VectorXd& totals) { a.log_channel_totals(s, totals); };

/// Whether calls may skip the check of channel gates.
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
    Transition<A> && (A::key_action != KeyAction::mix || (detail::HasApplyToKeys<A> && detail::HasApplyToState<A>)) &&
    (A::key_action != KeyAction::scale || detail::HasChannelTotals<A>);

template <class S>
struct SegmentVjp;

/// Base of transitions that act as the identity on keys.
struct KeepsKeys {
  static constexpr KeyAction key_action = KeyAction::none;

  [[nodiscard]] Index key_dimension() const { return Dynamic; }
  [[nodiscard]] Eigen::MatrixXd key_matrix(Index, Index d) const { return Eigen::MatrixXd::Identity(d, d); }

  void check_frame(const Frame& frame, Index) const { frame.require(); }

  template <class S>
  void to_segment_frame(Frame&, Segment, const Batch<S>& queries, const Batch<S>& keys, Batch<S> logits) const {
    if (logits.size() != 0) detail::set_causal_product(logits, keys, queries);
  }

  template <class S>
  void apply_to_queries(Segment, const Batch<S>&) const {}

  template <class S, class Gradient>
  void to_segment_frame_vjp(Frame&, Segment, SegmentVjp<S>& x, Gradient&) const;
  template <class S, class Gradient>
  void apply_to_queries_vjp(Segment, const Batch<S>&, const Batch<S>&, double, Gradient&) const {}
};

/// A transition whose type is forgotten, so that all of a call is compiled once for a scalar type and a feature map.
/// Cost: a virtual call per segment. Does not own the transition.
template <class Scalar>
class TransitionView {
 public:
  TransitionView() = default;
  TransitionView(const TransitionView&) = delete;
  TransitionView& operator=(const TransitionView&) = delete;
  virtual ~TransitionView() = default;

  [[nodiscard]] virtual KeyAction key_action() const = 0;
  [[nodiscard]] virtual Index length() const = 0;
  [[nodiscard]] virtual Index key_dimension() const = 0;
  [[nodiscard]] virtual bool moves_states() const = 0;     ///< whether it is one of `MovesStates`
  [[nodiscard]] virtual bool checks_channels() const = 0;  ///< whether calls may skip the check of channel gates
  virtual void check_frame(const Frame& frame, Index d) const = 0;
  [[nodiscard]] virtual double log_decay(Index token) const = 0;
  /// `log_decay` for all tokens of a segment.
  virtual void log_decays(Segment segment, double* log_gamma) const = 0;
  virtual void to_segment_frame(Frame& frame, Segment segment, Batch<Scalar> queries, Batch<Scalar> keys,
                                Batch<Scalar> logits) const = 0;
  virtual void apply_to_queries(Segment segment, Batch<Scalar> queries) const = 0;
  /// The next three do nothing for transitions without them.
  virtual void log_channel_totals(Segment segment, Eigen::VectorXd& totals) const = 0;
  virtual void apply_to_keys(Segment segment, Batch<Scalar> keys) const = 0;
  virtual void apply_to_state(Segment segment, Batch<Scalar> X) const = 0;
  /// Σ_t max_c log a_tc of channel gates, 0 of other transitions.
  [[nodiscard]] virtual double total_max_log_gate() const = 0;
  /// Channel decay under φ^P with the gate of each token's slowest channel as a scalar one, P = `degree`:
  ///
  ///     Symᴾ(diag(a_t)) = γ_tᴾ Symᴾ(diag(a_t / γ_t)),   γ_t = max_c a_tc
  ///
  /// so that exponents have it, and not the numbers of queries, keys and states, which it takes below all of the type.
  /// Null for other transitions, and where all γ_t are 1. Source: Symᴾ is homogeneous.
  [[nodiscard]] virtual std::unique_ptr<const TransitionView> factor_out_max_gate(int degree) const = 0;
};

namespace detail {

/// A transition with channel gates, the largest of which can be factored out.
template <class A>
concept HasMaxGates = requires(const A& a, Eigen::VectorXd& slowest) {
  { a.factor_out_max_gate(slowest) } -> std::same_as<A>;
  { a.total_max_log_gate() } -> std::convertible_to<double>;
};

template <class Scalar, Transition A>
class ViewOf : public TransitionView<Scalar> {
 public:
  explicit ViewOf(const A& transition) : transition_(transition) {}

  [[nodiscard]] KeyAction key_action() const override { return A::key_action; }
  [[nodiscard]] Index length() const override { return transition_.length(); }
  [[nodiscard]] Index key_dimension() const override { return transition_.key_dimension(); }
  [[nodiscard]] bool moves_states() const override { return MovesStates<A>; }
  [[nodiscard]] bool checks_channels() const override { return has_checked_channels<A> || !HasChannelTotals<A>; }
  void check_frame(const Frame& frame, Index d) const override { transition_.check_frame(frame, d); }
  [[nodiscard]] double log_decay(Index token) const override { return transition_.log_decay(token); }
  void log_decays(Segment segment, double* log_gamma) const override {
    for (Index i = 0; i < segment.size; ++i) log_gamma[i] = transition_.log_decay(segment.begin + i);
  }
  void to_segment_frame(Frame& frame, Segment segment, Batch<Scalar> queries, Batch<Scalar> keys,
                        Batch<Scalar> logits) const override;
  void apply_to_queries(Segment segment, Batch<Scalar> queries) const override;
  void log_channel_totals(Segment segment, Eigen::VectorXd& totals) const override {
    if constexpr (A::key_action == KeyAction::scale) {
      detail::resize_safely(totals, transition_.key_dimension());
      if constexpr (MovesStates<A>) {
        transition_.log_channel_totals(segment, totals);
      } else {
        Matrix<Scalar> ones = Matrix<Scalar>::Ones(totals.size(), 1);
        transition_.apply_to_queries(segment, Batch<Scalar>(ones));
        totals = ones.array().template cast<double>().log();
      }
    }
  }
  void apply_to_keys(Segment segment, Batch<Scalar> keys) const override {
    if constexpr (A::key_action == KeyAction::mix && MovesStates<A>) transition_.apply_to_keys(segment, keys);
  }
  void apply_to_state(Segment segment, Batch<Scalar> X) const override;
  [[nodiscard]] double total_max_log_gate() const override {
    if constexpr (HasMaxGates<A>)
      return transition_.total_max_log_gate();
    else
      return 0;
  }
  [[nodiscard]] std::unique_ptr<const TransitionView<Scalar>> factor_out_max_gate(int degree) const override;

 private:
  const A& transition_;
};

// Outside of the class, so that a file which calls a form does not compile them where a library has them.
template <class Scalar, Transition A>
void ViewOf<Scalar, A>::to_segment_frame(Frame& frame, Segment segment, Batch<Scalar> queries, Batch<Scalar> keys,
                                         Batch<Scalar> logits) const {
  transition_.to_segment_frame(frame, segment, queries, keys, logits);
}
template <class Scalar, Transition A>
void ViewOf<Scalar, A>::apply_to_queries(Segment segment, Batch<Scalar> queries) const {
  transition_.apply_to_queries(segment, queries);
}
template <class Scalar, Transition A>
void ViewOf<Scalar, A>::apply_to_state(Segment segment, Batch<Scalar> X) const {
  if constexpr (A::key_action == KeyAction::mix && MovesStates<A>) transition_.apply_to_state(segment, X);
}

template <class A>
struct HeldTransition {
  A held;
};

/// A transition with gates beside its own, both in its possession.
template <class Scalar, Transition A>
class GatedView final : private HeldTransition<A>, public ViewOf<Scalar, A> {
 public:
  GatedView(Eigen::VectorXd log_gates, A transition)
      : HeldTransition<A>{std::move(transition)}, ViewOf<Scalar, A>(this->held), log_gates_(std::move(log_gates)) {}

  [[nodiscard]] const A& transition() const { return this->held; }  ///< without these gates
  [[nodiscard]] double log_decay(Index token) const override {
    return log_gates_[token] + ViewOf<Scalar, A>::log_decay(token);
  }
  void log_decays(Segment segment, double* log_gamma) const override {
    for (Index i = 0; i < segment.size; ++i) log_gamma[i] = log_decay(segment.begin + i);
  }

 private:
  Eigen::VectorXd log_gates_;
};

/// See `TransitionView::factor_out_max_gate`. Null if the largest gates are all open, or there are none.
template <class Scalar, HasMaxGates A>
[[nodiscard]] std::unique_ptr<const GatedView<Scalar, A>> max_gates_factored_out(const A& transition, int degree) {
  if (transition.total_max_log_gate() == 0) return nullptr;
  Eigen::VectorXd slowest;
  A rest = transition.factor_out_max_gate(slowest);
  return std::make_unique<const GatedView<Scalar, A>>(degree * slowest, std::move(rest));
}

template <class Scalar, Transition A>
std::unique_ptr<const TransitionView<Scalar>> ViewOf<Scalar, A>::factor_out_max_gate(int degree) const {
  if constexpr (HasMaxGates<A>)
    return max_gates_factored_out<Scalar>(transition_, degree);
  else
    return nullptr;
}

}  // namespace detail
}  // namespace SYMPOW_NAMESPACE
