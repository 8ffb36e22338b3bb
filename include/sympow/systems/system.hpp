// A named system: a feature map and a transition.
#pragma once

#include <sympow/feature/feature_map.hpp>
#include <sympow/transition/transition.hpp>

namespace SYMPOW_NAMESPACE::systems {

/// Feature map and transition under their name in the literature.
///
///     const auto [feature, transition] = systems::gated_delta_net(K, beta, log_gamma);
///     Y = chunked(feature, transition, Q, K, systems::delta_rule_values(V, beta), state, {.scale = 1 / std::sqrt(d)});
///
/// Peers scale queries by d^{-1/2} by default; here set `Options::scale`, which is 1 by default. Peers' states are K ×
/// V, here e × D, the transpose. Their gates are natural logarithms, as here. Query head h reads key head h / G in
/// flash-linear-attention, h mod H in ggml; a call here is one head.
template <FeatureMap F, Transition A>
struct System {
  F feature;     ///< κ
  A transition;  ///< b and M
};

}  // namespace SYMPOW_NAMESPACE::systems
