// κ(s) = s^P: symmetric power attention.
#pragma once

#include <sympow/core/view.hpp>
#include <sympow/feature/feature_map.hpp>
#include <sympow/tensor/symmetric_power.hpp>
#include <sympow/tensor/symmetric_power_vjp.hpp>

namespace SYMPOW_NAMESPACE {

/// The symmetric power feature map: score s^P, φ = φ^P, D = C(d + P - 1, P). Normalized by default for even P; odd
/// powers have negative scores and give no distribution. Cost of an embedding: see `symmetric_power`. Final, because
/// the forms compute φ^P themselves: to change `embed`, wrap a member. Source: Symmetric Power Transformers, §4.2;
/// Conformal Transformations, §2.
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

  /// dx.col(t) = Dφ(x_t)ᵀ dy_t. Shapes: x, dx: d × n; y, dy: D × n; no overlap, y is not read. Cost: 2 (C(d + P, P) -
  /// 1) multiply-adds per column; allocates if P d > 4,000, and copies of expressions. Throws `ShapeMismatch`.
  template <class X, class Y, class DY, class DX>
  void embed_vjp(const X& x, [[maybe_unused]] const Y& y, const DY& dy, DX&& dx) const {
    detail::check_vjp_shapes(x, dy, dx, dimension(x.rows()));
    if constexpr (P == 1) {
      dx = dy;
    } else {
      using Scalar = typename X::Scalar;
      const ConstBatch<Scalar> source(x), gradients(dy);
      detail::set_symmetric_power_vjp<Scalar>(P, source, gradients, dx);
    }
  }
};

}  // namespace SYMPOW_NAMESPACE
