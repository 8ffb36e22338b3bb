// Several transitions at once: any number of scalar decays, and at most one that acts in key space.
#pragma once

#include <concepts>

#include <sympow/transition/transport_vjp.hpp>

namespace SYMPOW_NAMESPACE {

/// A_i = A'_i A''_i for two transitions that commute because at most one of them acts in key space.
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
                "Householder): two of them do not commute in general");

 public:
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
  void transport(Frame& frame, Segment segment, Batch<S> queries, Batch<S> keys, Batch<S> logits) const {
    acting().transport(frame, segment, queries, keys, logits);
  }
  template <class S>
  void pull(Segment segment, Batch<S> queries) const {
    acting().pull(segment, queries);
  }
  void log_channel_totals(Segment segment, Eigen::VectorXd& totals) const
    requires detail::HasChannelTotals<Acting>
  {
    acting().log_channel_totals(segment, totals);
  }
  /// Of the factor that acts in key space, see `ChannelDecay`.
  [[nodiscard]] double slowest_decay() const
    requires requires(const Acting& a) { a.slowest_decay(); }
  {
    return acting().slowest_decay();
  }
  /// Likewise; the other factor stays as it is.
  [[nodiscard]] TransitionProduct beside_slowest(Eigen::VectorXd& slowest) const
    requires requires(const Acting& a) {
      { a.beside_slowest(slowest) } -> std::same_as<Acting>;
    }
  {
    if constexpr (left_acts)
      return {left_.beside_slowest(slowest), right_};
    else
      return {left_, right_.beside_slowest(slowest)};
  }
  template <class S>
    requires detail::HasPush<Acting, S>
  void push(Segment segment, Batch<S> keys) const {
    acting().push(segment, keys);
  }
  template <class S>
    requires detail::HasAdvance<Acting, S>
  void advance(Segment segment, Batch<S> X) const {
    acting().advance(segment, X);
  }

  /// Of both factors.
  struct Gradient {
    typename detail::GradientOf<Left>::type left;    ///< of A'
    typename detail::GradientOf<Right>::type right;  ///< of A''
  };
  [[nodiscard]] Gradient zero_gradient(Index tokens) const
    requires has_gradient
  {
    return {left_.zero_gradient(tokens), right_.zero_gradient(tokens)};
  }
  void add_decay_flows(Segment s, const double* flows, Gradient& g) const
    requires has_gradient
  {
    left_.add_decay_flows(s, flows, g.left);
    right_.add_decay_flows(s, flows, g.right);
  }
  template <class S>
    requires detail::HasVjp<Acting, S>
  void transport_vjp(Frame& frame, Segment segment, TransportVjp<S>& x, Gradient& g) const {
    acting().template transport_vjp<S>(frame, segment, x, acting_part(g));
  }
  template <class S>
    requires detail::HasVjp<Acting, S>
  void pull_vjp(Segment segment, Batch<S> X, Batch<S> dX, double unit, Gradient& g) const {
    acting().template pull_vjp<S>(segment, X, dX, unit, acting_part(g));
  }
  [[nodiscard]] TransitionProduct part(Segment s) const
    requires detail::HasParts<Left> && detail::HasParts<Right>
  {
    return {left_.part(s), right_.part(s)};
  }
  void join(const Gradient& part, Segment s, Gradient& whole) const
    requires detail::HasParts<Left> && detail::HasParts<Right>
  {
    left_.join(part.left, s, whole.left);
    right_.join(part.right, s, whole.right);
  }
  [[nodiscard]] Planes planes() const
    requires requires(const Acting& a) { a.planes(); }
  {
    return acting().planes();
  }

 private:
  [[nodiscard]] static auto& acting_part(Gradient& g) {
    if constexpr (left_acts)
      return g.left;
    else
      return g.right;
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

/// The product of two transitions, `decay(log_gamma) * rotary(theta, beta)` being conformal-sympow. Throws
/// `ShapeMismatch`.
template <Transition Left, Transition Right>
[[nodiscard]] TransitionProduct<Left, Right> operator*(Left left, Right right) {
  return {std::move(left), std::move(right)};
}

}  // namespace SYMPOW_NAMESPACE
