// What a named system is: a feature map and a transition.
#pragma once

#include <sympow/feature/feature_map.hpp>
#include <sympow/transition/transition.hpp>

namespace SYMPOW_NAMESPACE::systems {

/// A choice of feature map and transition under the name that the literature gives it.
///
///     const auto [feature, transition] = systems::gated_delta_net(K, beta, log_gamma);
///     Y = chunked(feature, transition, Q, K, systems::delta_rule_values(V, beta), state, {.scale = 1 / std::sqrt(d)});
///
/// Peers scale queries by d^{-1/2} by default; here `Options::scale` says so, 1 unless given. Their states are K × V,
/// here e × D, the transpose. Their gates are natural logarithms, as here. Query head h reads key head h / G in
/// flash-linear-attention, h mod H in ggml; a call here is one head.
template <FeatureMap F, Transition A>
struct System {
  F feature;     ///< κ
  A transition;  ///< b and M
};

}  // namespace SYMPOW_NAMESPACE::systems
