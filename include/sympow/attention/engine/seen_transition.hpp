// A transition as the engines see it: with the decay of the slowest channels in exponents where that is needed.
#pragma once

#include <concepts>
#include <optional>
#include <variant>

#include <sympow/attention/engine/common_scale_rows.hpp>
#include <sympow/attention/state.hpp>
#include <sympow/transition/decay.hpp>
#include <sympow/transition/product.hpp>

namespace SYMPOW_NAMESPACE::detail {

/// Whether channels decay by themselves under scores that are powers.
template <class F, class A>
inline constexpr bool has_slowest_channel = F::score == Score::power && requires(const A& a, Eigen::VectorXd& slowest) {
  { a.beside_slowest(slowest) } -> std::same_as<A>;
};

/// The gate of a token's slowest channel as a scalar one,
///
///     Symᴾ(diag(a_t)) = γ_tᴾ Symᴾ(diag(a_t / γ_t)),   γ_t = max_c a_tc
///
/// so that exponents have it, and not the numbers of queries, keys and states, which it takes below all of the type.
/// Source: Symᴾ is homogeneous.
template <class F, Transition A>
[[nodiscard]] TransitionProduct<Decay, A> with_slowest_apart(const A& transition) {
  Eigen::VectorXd slowest;
  A rest = transition.beside_slowest(slowest);
  return {Decay(degree_of<F> * slowest), std::move(rest)};
}

/// On the way there: as it is, or so if its slowest channels decay much over the call, for a copy of the gates.
template <class Scalar, class F, Transition A>
class SeenTransition {
  static constexpr bool has_slowest = has_slowest_channel<F, A>;
  struct Apart {
    TransitionProduct<Decay, A> transition;
    ViewOf<Scalar, TransitionProduct<Decay, A>> view{transition};
  };

 public:
  explicit SeenTransition(const A& transition) : transition_(transition), view_(transition) {
    if constexpr (has_slowest)
      if (degree_of<F> * transition.slowest_decay() < least_log_decay)
        apart_.emplace(with_slowest_apart<F>(transition));
  }

  [[nodiscard]] const TransitionView<Scalar>& view() const {
    if constexpr (has_slowest)
      if (apart_) return apart_->view;
    return view_;
  }
  /// What a state that has taken these tokens says of their decays is what the transition says. `log_decay` is what it
  /// said before.
  void restore([[maybe_unused]] Frames<Scalar>& frames, [[maybe_unused]] double log_decay,
               [[maybe_unused]] Index tokens) const {
    if constexpr (has_slowest) {
      if (!apart_) return;
      for (Index t = 0; t < tokens; ++t) log_decay += transition_.log_decay(t);
      frames.log_decay = log_decay;
      frames.log_channels.array() += transition_.slowest_decay();
    }
  }

 private:
  const A& transition_;
  ViewOf<Scalar, A> view_;
  std::conditional_t<has_slowest, std::optional<Apart>, std::monostate> apart_;
};

}  // namespace SYMPOW_NAMESPACE::detail
