// φ of some tokens by panels that stay in the first cache, and back through it.
#pragma once

#include <algorithm>
#include <optional>

#include <sympow/core/panel.hpp>
#include <sympow/core/visitor.hpp>
#include <sympow/feature/pass_feature.hpp>
#include <sympow/simd/product.hpp>
#include <sympow/tensor/quadratic_form.hpp>
#include <sympow/tensor/symmetric_power_tree.hpp>
#include <sympow/tensor/symmetric_power_vjp.hpp>

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
    if constexpr (F::score == Score::power) {
      if (n == 0 || feature.degree == 1) return;
      tokens(n, d), prefixes(n, feature.degree - 1);
      panel(std::max(phi_panel_tokens * phi_panel_width, n * width(n)));
      features(feature.dimension(d), std::min(few_tokens, n));
    }
  }
};

/// visit(first, Φ, count): entries first … first + count - 1 of φ of the columns of x; Φ is (token, entry). `whole` is
/// another order of sums for who multiplies by them, and quicker for `few_tokens`. Maps of degree 1 are the identity.
template <class F, class Scalar>
void for_phi_panels(const F& feature, PhiBuffers<Scalar>& memory, MatrixView<Scalar> x, [[maybe_unused]] bool whole,
                    std::type_identity_t<Visitor<Index, Strided<const Scalar*>, Index>> visit) {
  const Index d = x.rows(), n = x.cols();
  if (degree_in(feature) == 1) return visit(0, {x.data(), x.outerStride(), 1}, d);
  if constexpr (F::score == Score::power) {
    const Index D = feature.dimension(d);
    if (whole || !feature.is_symmetric) {
      const auto features = memory.features(D, n);
      feature.embed(x, features);
      return visit(0, {features.data(), D, 1}, D);
    }
    constexpr Index least = 2;  // entries of one token alone must not lie side by side: they sum in another order
    const auto tokens = memory.tokens(n, d), panel = memory.panel(std::max(n, least), memory.width(n)).topRows(n);
    set_copy(tokens, x.transpose());
    SymmetricPowerPanels<Scalar> entries(feature.degree, tokens, panel, memory.prefixes(n, feature.degree - 1));
    for (Index first = 0, size = 0; first < D; first += size) {
      size = std::min<Index>(panel.cols(), D - first);
      entries.fill(size);
      visit(first, {panel.data(), 1, panel.outerStride()}, size);
    }
  }
}

// ---- Back through φ by panels: from gradients of its entries to those of the tokens

/// Whether φ is φ², and z·φ a quadratic form whose gradients are products.
template <class F>
[[nodiscard]] bool has_form([[maybe_unused]] const F& feature) {
  if constexpr (F::score == Score::power)
    return feature.is_symmetric && feature.degree == 2;
  else
    return false;
}

/// Memory for n tokens of d numbers, and for gradients of the first m of them.
template <class Scalar>
struct PhiVjpBuffers {
  Panel<Scalar> tokens, panel, prefixes;       ///< n × d, n × width, n × (P - 1)
  Panel<Scalar> d_tokens, d_panel, d_scratch;  ///< m × d, m × width, m × `scratch_columns`
  Panel<Scalar> form;                          ///< d × d, of the quadratic form of one gradient for all tokens
  Panel<Scalar> features, d_features;          ///< D × n and D × m, of a power without panels
};

/// visit(first, Φ, Ψ, dΦ): some entries of φ of x and of y, (token, entry), and memory for gradients of those of x, m ×
/// w, tokens down, which visit sets. Then dx.col(t) = Dφ(x_t)ᵀ dφ_t. Maps of degree 1 are the identity. Those of
/// powers leave Φ and Ψ out unless it `embeds`.
template <class F, class Scalar>
void for_phi_panels_vjp(
    const F& feature, PhiVjpBuffers<Scalar>& memory, MatrixView<Scalar> x, MatrixView<Scalar> y, MatrixView<Scalar> dx,
    std::type_identity_t<Visitor<Index, Strided<const Scalar*>, Strided<const Scalar*>, MatrixView<Scalar>>> visit,
    [[maybe_unused]] bool embeds = true) {
  const Index d = x.rows(), m = x.cols(), all = m + y.cols();
  if (degree_in(feature) == 1) {
    const auto gradients = memory.d_panel(m, d);
    visit(0, {x.data(), x.outerStride(), 1}, {y.data(), y.outerStride(), 1}, gradients);
    return set_copy(dx, gradients.transpose());
  }
  if constexpr (F::score == Score::power) {
    const int P = feature.degree;
    const Index D = feature.dimension(d);
    if (!feature.is_symmetric) {
      auto features = memory.features(D, all), d_features = memory.d_features(D, m), gradients = memory.d_panel(m, D);
      feature.embed(x, features.leftCols(m));
      feature.embed(y, features.rightCols(y.cols()));
      visit(0, {features.data(), D, 1}, {features.data() + D * m, D, 1}, gradients);
      set_copy(d_features, gradients.transpose());
      return feature.embed_vjp(x, features.leftCols(m), d_features, dx);
    }
    const auto tokens = memory.tokens(all, d), d_tokens = memory.d_tokens(m, d),
               d_panel = memory.d_panel(m, phi_panel_width);
    set_copy(tokens.topRows(m), x.transpose());
    set_copy(tokens.bottomRows(y.cols()), y.transpose());
    SymmetricPowerVjp<Scalar> back(P, tokens.topRows(m), d_panel,
                                   memory.d_scratch(m, SymmetricPowerVjp<Scalar>::scratch_columns(P, d)), d_tokens);
    const auto panel = memory.panel(embeds ? all : 0, phi_panel_width);
    std::optional<SymmetricPowerPanels<Scalar>> entries;
    if (embeds) entries.emplace(P, tokens, panel, memory.prefixes(all, P - 1));
    for (Index first = 0, size = 0; first < D; first += size) {
      size = std::min(phi_panel_width, D - first);
      if (embeds) entries->fill(size);
      if (embeds)
        visit(first, {panel.data(), 1, all}, {panel.data() + m, 1, all}, d_panel.leftCols(size));
      else
        visit(first, {}, {}, d_panel.leftCols(size));
      back.take(size);
    }
    set_copy(dx, d_tokens.transpose());
  }
}

/// The same of x alone and without φ: visit(first, dΦ) sets the gradients of some entries.
template <class F, class Scalar, class Visit>
void for_phi_gradients(const F& feature, PhiVjpBuffers<Scalar>& memory, MatrixView<Scalar> x, MatrixView<Scalar> dx,
                       const Visit& visit) {
  using Entries = Strided<const Scalar*>;
  for_phi_panels_vjp<F, Scalar>(
      feature, memory, x, x.leftCols(0), dx,
      [&](Index first, Entries, Entries, MatrixView<Scalar> gradients) { visit(first, gradients); }, false);
}

/// The same of one gradient z of φ for all tokens: dx.col(t) = Dφ(x_t)ᵀ z.
template <class F, class Scalar>
void set_phi_gradients(const F& feature, PhiVjpBuffers<Scalar>& memory, MatrixView<Scalar> x,
                       ColumnView<const Scalar> z, MatrixView<Scalar> dx) {
  if (has_form(feature)) {
    const auto form = memory.form(x.rows(), x.rows());
    set_quadratic_form<Scalar>(z, form);
    return set_product(dx, form, x);
  }
  for_phi_gradients<F, Scalar>(feature, memory, x, dx, [&](Index first, MatrixView<Scalar> gradients) {
    for (Index c = 0; c < gradients.cols(); ++c) gradients.col(c).setConstant(z[first + c]);
  });
}

}  // namespace SYMPOW_NAMESPACE::detail
