// A transition as the engines of gradients see it.
#pragma once

#include <concepts>

#include <sympow/attention/weights.hpp>
#include <sympow/transition/decay.hpp>
#include <sympow/transition/product.hpp>

namespace SYMPOW_NAMESPACE::detail {

/// On the way there and on the way back, which adds to a gradient. Where channels decay and scores are powers, the gate
/// of a token's slowest channel is a scalar one on the way there,
///
///     Symᴾ(diag(a_t)) = γ_tᴾ Symᴾ(diag(a_t / γ_t)),   γ_t = max_c a_tc
///
/// so that exponents have it, and not the numbers of queries, keys and states, whose powers would be below all of the
/// type. On the way back the flow through a channel is that through all of a_t. Source: Symᴾ is homogeneous.
template <class Scalar, class F, Transition A>
class VjpViews {
  static constexpr bool has_slowest = F::score == Score::power && requires(const A& a, Eigen::VectorXd& slowest) {
    { a.beside_slowest(slowest) } -> std::same_as<A>;
  };
  using Seen = std::conditional_t<has_slowest, TransitionProduct<Decay, A>, const A&>;

 public:
  VjpViews(const A& transition, typename A::Gradient& gradient)
      : seen_(see(transition)), there_(seen_), back_(rest(), gradient) {}

  [[nodiscard]] const TransitionView<Scalar>& there() const { return there_; }
  [[nodiscard]] VjpViewOf<Scalar, A>& back() { return back_; }

 private:
  static Seen see(const A& transition) {
    if constexpr (has_slowest) {
      Eigen::VectorXd slowest;
      A rest = transition.beside_slowest(slowest);
      return {Decay(degree_of<F> * slowest), std::move(rest)};
    } else {
      return transition;
    }
  }
  [[nodiscard]] const A& rest() const {
    if constexpr (has_slowest)
      return seen_.right();
    else
      return seen_;
  }

  Seen seen_;
  ViewOf<Scalar, std::remove_cvref_t<Seen>> there_;
  VjpViewOf<Scalar, A> back_;
};

}  // namespace SYMPOW_NAMESPACE::detail
