// A transition as passes see it: with the largest gate of every token factored out of channel decays where needed.
#pragma once

#include <concepts>
#include <optional>
#include <variant>

#include <sympow/detail/state_sums.hpp>
#include <sympow/feature/feature_map.hpp>
#include <sympow/transition/decay.hpp>
#include <sympow/transition/product.hpp>

namespace SYMPOW_NAMESPACE::detail {

/// Whether channels decay by themselves under scores that are powers.
template <class F, class A>
inline constexpr bool has_slowest_channel = F::score == Score::power && requires(const A& a, Eigen::VectorXd& slowest) {
  { a.factor_out_max_gate(slowest) } -> std::same_as<A>;
};

/// The gate of a token's slowest channel as a scalar one,
///
///     Symᴾ(diag(a_t)) = γ_tᴾ Symᴾ(diag(a_t / γ_t)),   γ_t = max_c a_tc
///
/// so that exponents have it, and not the numbers of queries, keys and states, which it takes below all of the type.
/// Source: Symᴾ is homogeneous.
template <class F, Transition A>
[[nodiscard]] TransitionProduct<Decay, A> factor_out_max_gate(const A& transition) {
  Eigen::VectorXd slowest;
  A rest = transition.factor_out_max_gate(slowest);
  return {Decay(degree_of<F> * slowest), std::move(rest)};
}

/// As it is, or with the largest gate factored out if the slowest channels decay by more than e^-27 over the call.
template <class Scalar, class F, Transition A>
class FactoredTransition {
  static constexpr bool has_slowest = has_slowest_channel<F, A>;
  struct Factored {
    TransitionProduct<Decay, A> transition;
    ViewOf<Scalar, TransitionProduct<Decay, A>> view{transition};
  };

 public:
  explicit FactoredTransition(const A& transition) : transition_(transition), view_(transition) {
    if constexpr (has_slowest)
      if (degree_of<F> * transition.total_max_log_gate() < least_log_decay)
        factored_.emplace(factor_out_max_gate<F>(transition));
  }

  [[nodiscard]] const TransitionView<Scalar>& view() const {
    if constexpr (has_slowest)
      if (factored_) return factored_->view;
    return view_;
  }
  /// What a state that has taken these tokens says of their decays is what the transition says. `log_decay` is what it
  /// said before.
  void restore([[maybe_unused]] Frames<Scalar>& frames, [[maybe_unused]] double log_decay,
               [[maybe_unused]] Index tokens) const {
    if constexpr (has_slowest) {
      if (!factored_) return;
      for (Index t = 0; t < tokens; ++t) log_decay += transition_.log_decay(t);
      frames.log_decay = log_decay;
      frames.log_channels.array() += transition_.total_max_log_gate();
    }
  }

 private:
  const A& transition_;
  ViewOf<Scalar, A> view_;
  std::conditional_t<has_slowest, std::optional<Factored>, std::monostate> factored_;
};

}  // namespace SYMPOW_NAMESPACE::detail
