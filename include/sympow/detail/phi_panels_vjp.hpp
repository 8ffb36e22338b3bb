// Back through φ by panels: from gradients of its entries to those of the tokens.
#pragma once

#include <sympow/core/visitor.hpp>
#include <sympow/detail/embedded_feature.hpp>
#include <sympow/detail/phi_panels.hpp>

namespace SYMPOW_NAMESPACE::detail {

/// Whether φ is quadratic, and z·φ a form whose gradients are products.
template <class F, class Scalar>
inline constexpr bool has_form = requires(const F& feature, ColumnView<const Scalar> z, MatrixView<Scalar> form) {
  feature.set_quadratic_form(z, form);
};

/// Memory for n tokens of d numbers, and for gradients of the first m of them.
template <class Scalar>
struct PhiVjpBuffers {
  Panel<Scalar> tokens, panel, prefixes;        ///< n × d, n × width, n × (P - 1)
  Panel<Scalar> d_tokens, d_panel, d_scratch;   ///< m × d, m × width, m × `vjp_columns` of the power
  Panel<Scalar> form;                           ///< d × d, of the quadratic form of one gradient for all tokens
  Panel<Scalar> columns, features, d_features;  ///< d × n, D × n and D × m, of a power without panels

  template <class F>
  void reserve(Index d, Index n, Index m) {
    d_panel(m, degree_of<F> > 1 ? phi_panel_width : d);
    if constexpr (requires { F::vjp_columns(d); }) {
      tokens(n, d), prefixes(n, degree_of<F> - 1), panel(n, phi_panel_width);
      d_tokens(m, d), d_scratch(m, F::vjp_columns(d));
    }
    if constexpr (has_form<F, Scalar>) form(d, d);
  }
};

/// visit(first, Φ, Ψ, dΦ): some entries of φ of x and of y, (token, entry), and memory for gradients of those of x, m ×
/// w, tokens down, which visit sets. Then dx.col(t) = Dφ(x_t)ᵀ dφ_t. Maps of degree 1 are the identity.
template <class F, class Scalar>
void for_phi_panels_vjp(
    [[maybe_unused]] const F& feature, PhiVjpBuffers<Scalar>& memory, MatrixView<Scalar> x, MatrixView<Scalar> y,
    MatrixView<Scalar> dx,
    std::type_identity_t<Visitor<Index, Strided<const Scalar*>, Strided<const Scalar*>, MatrixView<Scalar>>> visit) {
  const Index d = x.rows(), m = x.cols(), all = m + y.cols();
  if constexpr (degree_of<F> == 1) {
    const auto gradients = memory.d_panel(m, d);
    visit(0, {x.data(), x.outerStride(), 1}, {y.data(), y.outerStride(), 1}, gradients);
    set_copy(dx, gradients.transpose());
  } else if constexpr (requires { F::vjp_columns(d); }) {
    auto tokens = memory.tokens(all, d), panel = memory.panel(all, phi_panel_width),
         prefixes = memory.prefixes(all, degree_of<F> - 1), d_tokens = memory.d_tokens(m, d),
         d_panel = memory.d_panel(m, phi_panel_width), d_scratch = memory.d_scratch(m, F::vjp_columns(d));
    set_copy(tokens.topRows(m), x.transpose());
    set_copy(tokens.bottomRows(y.cols()), y.transpose());
    feature.embed_by_panels_vjp(tokens, panel, prefixes, d_panel, d_scratch, d_tokens,
                                [&](Index first, MatrixView<const Scalar> phi, MatrixView<Scalar> gradients) {
                                  visit(first, {phi.data(), 1, phi.outerStride()},
                                        {phi.data() + m, 1, phi.outerStride()}, gradients);
                                });
    set_copy(dx, d_tokens.transpose());
  } else {
    const Index D = feature.dimension(d);
    auto columns = memory.columns(d, all), features = memory.features(D, all), d_features = memory.d_features(D, m),
         gradients = memory.d_panel(m, D);
    columns.leftCols(m) = x, columns.rightCols(y.cols()) = y;
    feature.embed(columns, features);
    visit(0, {features.data(), D, 1}, {features.data() + D * m, D, 1}, gradients);
    set_copy(d_features, gradients.transpose());
    feature.embed_vjp(columns.leftCols(m), features.leftCols(m), d_features, dx);
  }
}

/// The same of x alone and without φ: visit(first, dΦ) sets the gradients of some entries.
template <class F, class Scalar>
void for_phi_gradients([[maybe_unused]] const F& feature, PhiVjpBuffers<Scalar>& memory, MatrixView<Scalar> x,
                       MatrixView<Scalar> dx, std::type_identity_t<Visitor<Index, MatrixView<Scalar>>> visit) {
  const Index d = x.rows(), m = x.cols();
  if constexpr (degree_of<F> == 1) {
    const auto gradients = memory.d_panel(m, d);
    visit(0, gradients);
    set_copy(dx, gradients.transpose());
  } else if constexpr (requires { F::vjp_columns(d); }) {
    auto tokens = memory.tokens(m, d), d_tokens = memory.d_tokens(m, d), d_panel = memory.d_panel(m, phi_panel_width),
         d_scratch = memory.d_scratch(m, F::vjp_columns(d));
    set_copy(tokens, x.transpose());
    feature.vjp_by_panels(tokens, d_panel, d_scratch, d_tokens, visit);
    set_copy(dx, d_tokens.transpose());
  } else {
    for_phi_panels_vjp<F, Scalar>(feature, memory, x, x.leftCols(0), dx,
                                  [&](Index first, Strided<const Scalar*>, Strided<const Scalar*>,
                                      MatrixView<Scalar> gradients) { visit(first, gradients); });
  }
}

/// The same of one gradient z of φ for all tokens: dx.col(t) = Dφ(x_t)ᵀ z.
template <class F, class Scalar>
void set_phi_gradients(const F& feature, PhiVjpBuffers<Scalar>& memory, MatrixView<Scalar> x,
                       ColumnView<const Scalar> z, MatrixView<Scalar> dx) {
  if constexpr (has_form<F, Scalar>) {
    const auto form = memory.form(x.rows(), x.rows());
    feature.set_quadratic_form(z, form);
    set_product(dx, form, x);
  } else {
    for_phi_gradients(feature, memory, x, dx, [&](Index first, MatrixView<Scalar> gradients) {
      for (Index c = 0; c < gradients.cols(); ++c) gradients.col(c).setConstant(z[first + c]);
    });
  }
}

}  // namespace SYMPOW_NAMESPACE::detail
