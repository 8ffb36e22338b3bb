// κ(s) = s^P: symmetric power attention.
#pragma once

#include <sympow/core/view.hpp>
#include <sympow/feature/feature_map.hpp>
#include <sympow/tensor/symmetric_power.hpp>

namespace SYMPOW_NAMESPACE {

/// The symmetric power as a feature map: score s^P, φ = φ^P, D = C(d + P - 1, P). Normalised by default for even P; an
/// odd power has negative scores and gives no distribution. Cost of an embedding: see `symmetric_power`. Final, for the
/// forms take `embed_by_panels` where they can: a map that changes `embed` holds one instead. Source: Symmetric Power
/// Transformers, §4.2; Conformal Transformations, §2.
template <int P>
struct SymmetricPower final {
  static_assert(1 <= P && P <= max_power, "the power must lie in 1 … 8");
  static constexpr Score score = Score::power;
  static constexpr int degree = P;
  static constexpr bool nonnegative = P % 2 == 0;

  [[nodiscard]] constexpr Index dimension(Index d) const { return symmetric_dimension(d, P); }

  template <class X, class Y>
  void embed(const X& x, Y&& y) const {
    if constexpr (detail::is_view<X> && detail::is_view<Y>)
      detail::SymmetricPowerEmbedding::fill<P>(x, y);
    else
      y.noalias() = symmetric_power<P>(x);
  }

  /// The same for tokens that lie side by side, X: n × d, some entries at a time: `consume(first, Φ)` sees φ_first,
  /// φ_{first+1}, … of all tokens in the columns of Φ. The panel is n × block, the prefixes are n × (P - 1) of scratch.
  template <class X, class Panel, class Consume>
  void embed_by_panels(const X& x, Panel& panel, Panel& prefixes, Consume&& consume) const
    requires(P > 1)
  {
    detail::SymmetricPowerPanels<P, X, Panel, std::remove_reference_t<Consume>>(x, panel, prefixes, consume);
  }
};

}  // namespace SYMPOW_NAMESPACE
