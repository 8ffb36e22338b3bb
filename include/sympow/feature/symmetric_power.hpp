// κ(s) = s^P: symmetric power attention.
#pragma once

#include <algorithm>

#include <sympow/core/view.hpp>
#include <sympow/feature/feature_map.hpp>
#include <sympow/tensor/quadratic_form.hpp>
#include <sympow/tensor/symmetric_power.hpp>
#include <sympow/tensor/symmetric_power_vjp.hpp>

namespace SYMPOW_NAMESPACE {

/// The symmetric power feature map: score s^P, φ = φ^P, D = C(d + P - 1, P). Normalized by default for even P; odd
/// powers have negative scores and give no distribution. Cost of an embedding: see `symmetric_power`. Final, because
/// the forms prefer `embed_by_panels`: to change `embed`, wrap a member. Source: Symmetric Power Transformers, §4.2;
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

  /// Embeds n tokens, X: n × d, a block of entries at a time: `consume(first, Φ)` receives φ_first, φ_{first+1}, … as
  /// columns of Φ. panel: n × block; prefixes: n × (P - 1), scratch.
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
      detail::set_symmetric_power_vjp<P, Scalar>(source, gradients, dx);
    }
  }

  /// Embeds as `embed_by_panels` and backpropagates in one traversal. visit(first, Φ, dΦ) receives φ_first, … of all n
  /// tokens, n × w, and writes the gradients of these entries for the first m ≤ n tokens into dΦ, m × w. d_tokens: m ×
  /// d, the result; d_scratch: m × vjp_columns(d); both panels have equally many columns.
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
  /// Backpropagates without φ: visit(first, dΦ) writes the gradients for all tokens, m = n.
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
  /// Number of columns of `d_scratch`.
  [[nodiscard]] static constexpr Index vjp_columns(Index d)
    requires(P > 1)
  {
    return detail::SymmetricPowerVjp<P, double>::scratch_columns(d);
  }
  /// The linear map x ↦ Dφ(x)ᵀ z as a d × d matrix.
  template <class Z, class M>
  void set_quadratic_form(const Z& z, M&& form) const
    requires(P == 2)
  {
    detail::set_quadratic_form<typename Z::Scalar>(z, form);
  }
};

}  // namespace SYMPOW_NAMESPACE
