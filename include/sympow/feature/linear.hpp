// κ(s) = s: linear attention.
#pragma once

#include <sympow/feature/feature_map.hpp>

namespace SYMPOW_NAMESPACE {

/// The identity feature map: score s, φ(x) = x, D = d. Unnormalized by default, since scores may be negative. Source:
/// Transformers are RNNs (2020), with φ = id.
struct Linear {
  static constexpr Score score = Score::power;
  static constexpr int degree = 1;
  static constexpr bool nonnegative = false;

  [[nodiscard]] constexpr Index dimension(Index d) const { return d; }

  template <class X, class Y>
  void embed(const X& x, Y&& y) const {
    y = x;
  }

  /// dx = dy, all d × n. Throws `ShapeMismatch`.
  template <class X, class Y, class DY, class DX>
  void embed_vjp(const X& x, [[maybe_unused]] const Y& y, const DY& dy, DX&& dx) const {
    detail::check_vjp_shapes(x, dy, dx, x.rows());
    dx = dy;
  }
};

}  // namespace SYMPOW_NAMESPACE
