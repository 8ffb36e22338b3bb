// A transition as the engines of gradients see it.
#pragma once

#include <sympow/detail/factored_transition.hpp>

namespace SYMPOW_NAMESPACE::detail {

/// On the way there, with the gates of slowest channels as scalar ones, see `factor_out_max_gate`, and on the way back,
/// which adds to a gradient: the flow through a channel is that through all of a_t.
template <class Scalar, class F, Transition A>
class VjpViews {
  static constexpr bool has_slowest = has_slowest_channel<F, A>;
  using Seen = std::conditional_t<has_slowest, TransitionProduct<Decay, A>, const A&>;

 public:
  VjpViews(const A& transition, typename A::Gradient& gradient)
      : seen_(see(transition)), there_(seen_), back_(rest(), gradient) {}

  [[nodiscard]] const TransitionView<Scalar>& there() const { return there_; }
  [[nodiscard]] VjpViewOf<Scalar, A>& back() { return back_; }

 private:
  static Seen see(const A& transition) {
    if constexpr (has_slowest)
      return factor_out_max_gate<F>(transition);
    else
      return transition;
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
