// φ of some tokens by panels that stay in the first cache.
#pragma once

#include <algorithm>

#include <sympow/core/panel.hpp>
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

}  // namespace SYMPOW_NAMESPACE::detail
