// Products of transitions: any number of scalar decays, and at most one factor that acts on keys, or channel gates and
// a Householder chain behind them.
#pragma once

#include <concepts>
#include <utility>

#include <sympow/transition/segment_vjp.hpp>

namespace SYMPOW_NAMESPACE {

template <Transition Left, Transition Right>
class TransitionProduct;

namespace detail {

/// Whether a transition is a `Factor`, or a product with such a factor.
template <class Factor, class A>
inline constexpr bool has_factor = std::same_as<Factor, A>;
template <class Factor, class Left, class Right>
inline constexpr bool has_factor<Factor, TransitionProduct<Left, Right>> =
    has_factor<Factor, Left> || has_factor<Factor, Right>;

template <class A>
inline constexpr bool is_product = false;
template <class Left, class Right>
inline constexpr bool is_product<TransitionProduct<Left, Right>> = true;

/// The part of a transition's gradient that is the `Factor`'s, the first one's if it has several.
template <class Factor, class A, class Gradient>
[[nodiscard]] const auto& gradient_of(const Gradient& gradient) {
  static_assert(has_factor<Factor, A>, "the transition has no factor of this type");
  if constexpr (!has_factor<Factor, A> || !is_product<A>)
    return gradient;
  else if constexpr (has_factor<Factor, typename A::LeftFactor>)
    return gradient_of<Factor, typename A::LeftFactor>(gradient.left());
  else
    return gradient_of<Factor, typename A::RightFactor>(gradient.right());
}

}  // namespace detail

/// A_i = A'_i A''_i for two transitions; they commute because at most one acts on keys.
template <Transition Left, Transition Right>
class TransitionProduct {
  static constexpr bool left_acts = Left::key_action != KeyAction::none;
  using Acting = std::conditional_t<left_acts, Left, Right>;
  static constexpr bool has_gradient = requires {
    typename Left::Gradient;
    typename Right::Gradient;
  };
  static_assert(!left_acts || Right::key_action == KeyAction::none,
                "a product of transitions has at most one factor that acts in key space (channel decay, rotary, "
                "Householder): two of them do not commute in general; the only pair is channel_decay(…) * "
                "householder(…), gates first");

 public:
  using LeftFactor = Left;    ///< the type of A'
  using RightFactor = Right;  ///< the type of A''
  static constexpr KeyAction key_action = Acting::key_action;
  static constexpr bool checks_channels = detail::has_checked_channels<Acting>;

  /// Throws `ShapeMismatch` if both have a length and the lengths differ.
  TransitionProduct(Left left, Right right) : left_(std::move(left)), right_(std::move(right)) {
    if (left_.length() != Dynamic && right_.length() != Dynamic)
      detail::check_size("length of the right transition", right_.length(), left_.length(),
                         "length of the left transition");
  }

  [[nodiscard]] const Left& left() const { return left_; }     ///< A'
  [[nodiscard]] const Right& right() const { return right_; }  ///< A''
  [[nodiscard]] Index length() const { return left_.length() != Dynamic ? left_.length() : right_.length(); }
  [[nodiscard]] Index key_dimension() const { return acting().key_dimension(); }
  [[nodiscard]] double log_decay(Index token) const { return left_.log_decay(token) + right_.log_decay(token); }
  [[nodiscard]] Eigen::MatrixXd key_matrix(Index token, Index d) const { return acting().key_matrix(token, d); }
  void check_frame(const Frame& frame, Index d) const { acting().check_frame(frame, d); }

  template <class S>
  void to_segment_frame(Frame& frame, Segment segment, Batch<S> queries, Batch<S> keys, Batch<S> logits) const {
    acting().to_segment_frame(frame, segment, queries, keys, logits);
  }
  template <class S>
  void apply_to_queries(Segment segment, Batch<S> queries) const {
    acting().apply_to_queries(segment, queries);
  }
  void log_channel_totals(Segment segment, Eigen::VectorXd& totals) const
    requires detail::HasChannelTotals<Acting>
  {
    acting().log_channel_totals(segment, totals);
  }
  /// Of the factor that acts on keys, see `ChannelDecay`.
  [[nodiscard]] double total_max_log_gate() const
    requires requires(const Acting& a) { a.total_max_log_gate(); }
  {
    return acting().total_max_log_gate();
  }
  /// Of the factor that acts on keys; the second factor is copied.
  [[nodiscard]] TransitionProduct factor_out_max_gate(Eigen::VectorXd& slowest) const
    requires requires(const Acting& a) {
      { a.factor_out_max_gate(slowest) } -> std::same_as<Acting>;
    }
  {
    if constexpr (left_acts)
      return {left_.factor_out_max_gate(slowest), right_};
    else
      return {left_, right_.factor_out_max_gate(slowest)};
  }
  template <class S>
    requires detail::HasApplyToKeys<Acting, S>
  void apply_to_keys(Segment segment, Batch<S> keys) const {
    acting().apply_to_keys(segment, keys);
  }
  template <class S>
    requires detail::HasApplyToState<Acting, S>
  void apply_to_state(Segment segment, Batch<S> X) const {
    acting().apply_to_state(segment, X);
  }

  /// Of the parameters of both factors: `gradient.of<Decay>().log_gamma`.
  class Gradient {
    using OfLeft = typename detail::GradientOf<Left>::type;
    using OfRight = typename detail::GradientOf<Right>::type;

   public:
    Gradient() = default;
    Gradient(OfLeft left, OfRight right) : left_(std::move(left)), right_(std::move(right)) {}

    /// Of the factor of this type, the first one if there are several.
    template <class Factor>
    [[nodiscard]] const auto& of() const {
      return detail::gradient_of<Factor, TransitionProduct>(*this);
    }
    [[nodiscard]] const OfLeft& left() const { return left_; }     ///< of A'
    [[nodiscard]] const OfRight& right() const { return right_; }  ///< of A''
    [[nodiscard]] OfLeft& left() { return left_; }                 ///< of A'
    [[nodiscard]] OfRight& right() { return right_; }              ///< of A''

   private:
    OfLeft left_;
    OfRight right_;
  };
  [[nodiscard]] Gradient zero_gradient(Index tokens) const
    requires has_gradient
  {
    return {left_.zero_gradient(tokens), right_.zero_gradient(tokens)};
  }
  void add_decay_flows(Segment s, const double* flows, Gradient& g) const
    requires has_gradient
  {
    left_.add_decay_flows(s, flows, g.left());
    right_.add_decay_flows(s, flows, g.right());
  }
  template <class S>
    requires detail::HasVjp<Acting, S>
  void to_segment_frame_vjp(Frame& frame, Segment segment, SegmentVjp<S>& x, Gradient& g) const {
    acting().template to_segment_frame_vjp<S>(frame, segment, x, acting_gradient(g));
  }
  template <class S>
    requires detail::HasVjp<Acting, S>
  void apply_to_queries_vjp(Segment segment, Batch<S> X, Batch<S> dX, double unit, Gradient& g) const {
    acting().template apply_to_queries_vjp<S>(segment, X, dX, unit, acting_gradient(g));
  }
  [[nodiscard]] TransitionProduct part(Segment s) const
    requires detail::HasParts<Left> && detail::HasParts<Right>
  {
    return {left_.part(s), right_.part(s)};
  }
  void join(const Gradient& part, Segment s, Gradient& whole) const
    requires detail::HasParts<Left> && detail::HasParts<Right>
  {
    left_.join(part.left(), s, whole.left());
    right_.join(part.right(), s, whole.right());
  }
  [[nodiscard]] Planes planes() const
    requires requires(const Acting& a) { a.planes(); }
  {
    return acting().planes();
  }

 private:
  [[nodiscard]] static auto& acting_gradient(Gradient& g) {
    if constexpr (left_acts)
      return g.left();
    else
      return g.right();
  }
  [[nodiscard]] const Acting& acting() const {
    if constexpr (left_acts)
      return left_;
    else
      return right_;
  }

  Left left_;
  Right right_;
};

/// The product of two transitions; `decay(log_gamma) * rotary(theta, beta, pairing)` is conformal-sympow. Of channel
/// decay and a Householder chain scalar decays are factored out, so that these two meet. Throws `ShapeMismatch`.
template <Transition Left, Transition Right>
[[nodiscard]] auto operator*(Left left, Right right) {
  constexpr bool meet = Left::key_action == KeyAction::scale && Right::key_action == KeyAction::mix;
  if constexpr (meet && detail::is_product<Left>) {
    if constexpr (Left::LeftFactor::key_action == KeyAction::none)
      return left.left() * (left.right() * std::move(right));
    else
      return left.right() * (left.left() * std::move(right));
  } else if constexpr (meet && detail::is_product<Right>) {
    if constexpr (Right::LeftFactor::key_action == KeyAction::none)
      return right.left() * (std::move(left) * right.right());
    else
      return right.right() * (std::move(left) * right.left());
  } else {
    return TransitionProduct<Left, Right>{std::move(left), std::move(right)};
  }
}

}  // namespace SYMPOW_NAMESPACE
