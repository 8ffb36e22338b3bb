// κ(s) = s^P: symmetric power attention.
#pragma once

#include <algorithm>

#include <sympow/core/view.hpp>
#include <sympow/feature/feature_map.hpp>
#include <sympow/tensor/quadratic_form.hpp>
#include <sympow/tensor/symmetric_power.hpp>
#include <sympow/tensor/symmetric_power_vjp.hpp>

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
    using Scalar = typename X::Scalar;
    detail::SymmetricPowerPanels<P, Scalar> entries(x, panel, prefixes);
    const Index D = dimension(x.cols());
    for (Index first = 0, size = 0; first < D; first += size) {
      size = std::min<Index>(panel.cols(), D - first);
      entries.fill(size);
      consume(first, panel.leftCols(size));
    }
  }

  /// dx.col(t) = Dφ(x_t)ᵀ dy_t for columns x_t; x, dx: d × n, y, dy: D × n, without overlap. y is not read. Cost:
  /// 2 (C(d + P, P) - 1) multiplications and additions a column; allocates where P d is more than 4,000, and a copy of
  /// what has no memory of its own. Throws `ShapeMismatch`.
  template <class X, class Y, class DY, class DX>
  void embed_vjp(const X& x, [[maybe_unused]] const Y& y, const DY& dy, DX&& dx) const {
    detail::check_vjp_shapes(x, dy, dx, dimension(x.rows()));
    if constexpr (P == 1) {
      dx = dy;
    } else {
      using Scalar = typename X::Scalar;
      const ConstBatch<Scalar> from(x), gradients(dy);
      detail::set_symmetric_power_vjp<P, Scalar>(from, gradients, dx);
    }
  }

  /// The same for tokens that lie side by side, some entries at a time, in one walk with φ itself: X: n × d as in
  /// `embed_by_panels`, d_tokens: m × d, the gradients of the first m ≤ n tokens. visit(first, Φ, dΦ) sees φ_first, …
  /// of all tokens in the columns of Φ, n × w, and writes the gradients of these entries into dΦ, m × w. Both panels
  /// have the same number of columns; d_scratch is m × vjp_columns(d).
  template <class X, class Panel, class DX, class Visit>
  void embed_by_panels_vjp(const X& x, Panel& panel, Panel& prefixes, Panel& d_panel, Panel& d_scratch, DX&& d_tokens,
                           Visit&& visit) const
    requires(P > 1)
  {
    using Scalar = typename X::Scalar;
    detail::SymmetricPowerVjp<P, Scalar> gradients(detail::MatrixView<const Scalar>(x).topRows(d_tokens.rows()),
                                                   detail::MatrixView<Scalar>(d_panel), d_scratch, d_tokens);
    embed_by_panels(x, panel, prefixes, [&](Index first, auto&& entries) {
      visit(first, entries, d_panel.leftCols(entries.cols()));
      gradients.take(entries.cols());
    });
  }
  /// The same without φ: visit(first, dΦ) writes the gradients of all tokens, m = n.
  template <class X, class Panel, class DX, class Visit>
  void vjp_by_panels(const X& x, Panel& d_panel, Panel& d_scratch, DX&& d_tokens, Visit&& visit) const
    requires(P > 1)
  {
    detail::SymmetricPowerVjp<P, typename X::Scalar> gradients(x, d_panel, d_scratch, d_tokens);
    const Index D = dimension(x.cols());
    for (Index first = 0, size = 0; first < D; first += size) {
      size = std::min<Index>(d_panel.cols(), D - first);
      visit(first, d_panel.leftCols(size));
      gradients.take(size);
    }
  }
  /// Columns of `d_scratch`.
  [[nodiscard]] static constexpr Index vjp_columns(Index d)
    requires(P > 1)
  {
    return detail::SymmetricPowerVjp<P, double>::scratch_columns(d);
  }
  /// The linear map x ↦ Dφ(x)ᵀ z as a d × d matrix.
  template <class Z, class M>
  void set_form(const Z& z, M&& form) const
    requires(P == 2)
  {
    detail::set_quadratic_form<typename Z::Scalar>(z, form);
  }
};

}  // namespace SYMPOW_NAMESPACE
