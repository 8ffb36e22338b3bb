// φ of some tokens by panels that stay in the first cache, and back through it.
#pragma once

#include <algorithm>

#include <sympow/core/panel.hpp>
#include <sympow/core/visitor.hpp>
#include <sympow/feature/embedded_feature.hpp>
#include <sympow/feature/feature_map.hpp>
#include <sympow/simd/product.hpp>

namespace SYMPOW_NAMESPACE::detail {

inline constexpr Index phi_panel_width = 144;              ///< entries of φ at a time: whole tiles of a product
inline constexpr Index phi_panel_tokens = 48;              ///< queries that read a state together
inline constexpr Index few_tokens = max_unpacked_columns;  ///< that are embedded whole, one after the other

template <class Scalar>
struct PhiBuffers {
  Panel<Scalar> tokens;    ///< n × d, a channel of the tokens a column
  Panel<Scalar> panel;     ///< n × width, some entries of φ
  Panel<Scalar> prefixes;  ///< n × (P - 1)
  Panel<Scalar> features;  ///< D × n, all entries

  /// Entries at a time of n tokens: as many numbers for any n, in whole tiles of a product.
  static Index width(Index n) {
    return std::clamp<Index>(phi_panel_tokens * phi_panel_width / std::max<Index>(n, 1) / 24 * 24, 24, phi_panel_width);
  }
  /// Memory for up to n tokens of d numbers.
  template <class F>
  void reserve(const F& feature, Index d, Index n) {
    if constexpr (degree_of<F> > 1) {
      if (n == 0) return;
      tokens(n, d), prefixes(n, degree_of<F> - 1);
      panel(std::max(phi_panel_tokens * phi_panel_width, n * width(n)));
      features(feature.dimension(d), std::min(few_tokens, n));
    }
  }
};

/// visit(first, Φ, count): entries first … first + count - 1 of φ of the columns of x; Φ is (token, entry). `whole` is
/// another order of sums for who multiplies by them, and quicker for `few_tokens`. Maps of degree 1 are the identity.
template <class F, class Scalar, class Visit>
void for_phi_panels(const F& feature, PhiBuffers<Scalar>& memory, MatrixView<Scalar> x, [[maybe_unused]] bool whole,
                    const Visit& visit) {
  const Index d = x.rows(), n = x.cols();
  if constexpr (degree_of<F> == 1) {
    visit(Index(0), Strided<const Scalar*>{x.data(), x.outerStride(), 1}, d);
  } else {
    const auto visit_panel = [&](Index first, MatrixView<const Scalar> phi) {
      visit(first, Strided<const Scalar*>{phi.data(), 1, phi.outerStride()}, phi.cols());
    };
    if constexpr (requires(MatrixView<Scalar> t) { feature.embed_by_panels(t, t, t, visit_panel); })
      if (!whole) {
        constexpr Index least = 2;  // entries of one token alone must not lie side by side: they sum in another order
        auto tokens = memory.tokens(n, d), panel = memory.panel(std::max(n, least), memory.width(n)).topRows(n),
             prefixes = memory.prefixes(n, degree_of<F> - 1);
        set_copy(tokens, x.transpose());
        return feature.embed_by_panels(tokens, panel, prefixes, visit_panel);
      }
    const Index D = feature.dimension(d);
    const auto features = memory.features(D, n);
    feature.embed(x, features);
    visit(Index(0), Strided<const Scalar*>{features.data(), D, 1}, D);
  }
}

// ---- Back through φ by panels: from gradients of its entries to those of the tokens

/// Whether φ is quadratic, and z·φ a form whose gradients are products.
template <class F, class Scalar>
inline constexpr bool has_form = requires(const F& feature, ColumnView<const Scalar> z, MatrixView<Scalar> form) {
  feature.set_quadratic_form(z, form);
};

/// Memory for n tokens of d numbers, and for gradients of the first m of them.
template <class Scalar>
struct PhiVjpBuffers {
  Panel<Scalar> tokens, panel, prefixes;       ///< n × d, n × width, n × (P - 1)
  Panel<Scalar> d_tokens, d_panel, d_scratch;  ///< m × d, m × width, m × `vjp_columns` of the power
  Panel<Scalar> form;                          ///< d × d, of the quadratic form of one gradient for all tokens
  Panel<Scalar> features, d_features;          ///< D × n and D × m, of a power without panels
};

/// visit(first, Φ, Ψ, dΦ): some entries of φ of x and of y, (token, entry), and memory for gradients of those of x, m ×
/// w, tokens down, which visit sets. Then dx.col(t) = Dφ(x_t)ᵀ dφ_t. Maps of degree 1 are the identity. Those of
/// powers leave Φ and Ψ out unless it `embeds`.
template <class F, class Scalar, bool embeds = true>
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
    auto tokens = memory.tokens(all, d), d_tokens = memory.d_tokens(m, d), d_panel = memory.d_panel(m, phi_panel_width),
         d_scratch = memory.d_scratch(m, F::vjp_columns(d));
    set_copy(tokens.topRows(m), x.transpose());
    set_copy(tokens.bottomRows(y.cols()), y.transpose());
    if constexpr (embeds) {
      auto panel = memory.panel(all, phi_panel_width), prefixes = memory.prefixes(all, degree_of<F> - 1);
      feature.embed_by_panels_vjp(tokens, panel, prefixes, d_panel, d_scratch, d_tokens,
                                  [&](Index first, MatrixView<const Scalar> phi, MatrixView<Scalar> gradients) {
                                    visit(first, {phi.data(), 1, phi.outerStride()},
                                          {phi.data() + m, 1, phi.outerStride()}, gradients);
                                  });
    } else {
      feature.vjp_by_panels(tokens, d_panel, d_scratch, d_tokens,
                            [&](Index first, MatrixView<Scalar> gradients) { visit(first, {}, {}, gradients); });
    }
    set_copy(dx, d_tokens.transpose());
  } else {
    const Index D = feature.dimension(d);
    auto features = memory.features(D, all), d_features = memory.d_features(D, m), gradients = memory.d_panel(m, D);
    feature.embed(x, features.leftCols(m));
    feature.embed(y, features.rightCols(y.cols()));
    visit(0, {features.data(), D, 1}, {features.data() + D * m, D, 1}, gradients);
    set_copy(d_features, gradients.transpose());
    feature.embed_vjp(x, features.leftCols(m), d_features, dx);
  }
}

/// The same of x alone and without φ: visit(first, dΦ) sets the gradients of some entries.
template <class F, class Scalar, class Visit>
void for_phi_gradients(const F& feature, PhiVjpBuffers<Scalar>& memory, MatrixView<Scalar> x, MatrixView<Scalar> dx,
                       const Visit& visit) {
  using Entries = Strided<const Scalar*>;
  for_phi_panels_vjp<F, Scalar, false>(
      feature, memory, x, x.leftCols(0), dx,
      [&](Index first, Entries, Entries, MatrixView<Scalar> gradients) { visit(first, gradients); });
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
    for_phi_gradients<F, Scalar>(feature, memory, x, dx, [&](Index first, MatrixView<Scalar> gradients) {
      for (Index c = 0; c < gradients.cols(); ++c) gradients.col(c).setConstant(z[first + c]);
    });
  }
}

}  // namespace SYMPOW_NAMESPACE::detail
