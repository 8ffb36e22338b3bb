// φ of a segment's queries and keys by panels that never leave the cache.
#pragma once

#include <algorithm>
#include <type_traits>

#include <sympow/core/panel.hpp>
#include <sympow/core/product.hpp>
#include <sympow/core/visitor.hpp>
#include <sympow/feature/feature_map.hpp>

namespace SYMPOW_NAMESPACE::detail {

inline constexpr Index panel_width = 144;  // entries of φ at a time: whole tiles of a product, and whole short sums

inline constexpr Index strip = 48;  // queries that read a state together: their panel stays in the first cache

/// Entries of φ at a time of keys that are folded together: as many numbers, in whole tiles of a product.
inline Index fold_width(Index keys) {
  constexpr Index least = 24;
  return std::clamp(strip * panel_width / std::max<Index>(keys, 1) / least * least, least, panel_width);
}

/// Whether φ is quadratic, and z·φ a form whose gradients are products.
template <class F, class Scalar>
inline constexpr bool has_form =
    requires(const F& feature, ColumnView<const Scalar> z, MatrixView<Scalar> form) { feature.set_form(z, form); };

/// Memory for panels.
template <class Scalar>
struct PanelMemory {
  Panel<Scalar> tokens;    ///< n × d, one channel of the tokens a column
  Panel<Scalar> columns;   ///< d × n, one token a column
  Panel<Scalar> panel;     ///< n × width, some entries of φ
  Panel<Scalar> prefixes;  ///< n × (P - 1), on the way there
  Panel<Scalar> features;  ///< D × n, all entries
  // Of m tokens, for `for_feature_panels_vjp`.
  Panel<Scalar> d_tokens;    ///< m × d, gradients of them
  Panel<Scalar> d_panel;     ///< m × width, of some entries of φ
  Panel<Scalar> d_scratch;   ///< m × `vjp_columns` of the power
  Panel<Scalar> d_features;  ///< D × m, of all entries
  Panel<Scalar> form;        ///< d × d, of the quadratic form of one gradient for all tokens

  /// Memory for so many tokens.
  template <class F>
  void reserve(Index rows, Index n) {
    columns(rows, n);
    if constexpr (degree_of<F> > 1) {
      tokens(n, rows), prefixes(n, degree_of<F> - 1);
      panel(std::max(strip * panel_width, n * fold_width(n)));
    }
  }
  /// And for gradients of so many of them.
  template <class F>
  void reserve_vjp(Index rows, Index n, Index gradients) {
    if constexpr (degree_of<F> > 1) panel(n, panel_width);
    d_panel(gradients, degree_of<F> > 1 ? panel_width : rows);
    if constexpr (degree_of<F> > 1) d_tokens(gradients, rows);
    if constexpr (requires { F::vjp_columns(rows); }) d_scratch(gradients, F::vjp_columns(rows));
    if constexpr (has_form<F, Scalar>) form(rows, rows);
  }
};

/// Some entries of φ, one token a row, wherever they lie.
template <class Scalar>
class Entries : public Eigen::Map<const Matrix<Scalar>, 0, Eigen::Stride<Dynamic, Dynamic>> {
  using Base = Eigen::Map<const Matrix<Scalar>, 0, Eigen::Stride<Dynamic, Dynamic>>;

 public:
  /// Of tokens down.
  explicit Entries(MatrixView<const Scalar> x) : Base(x.data(), x.rows(), x.cols(), {x.outerStride(), 1}) {}
  /// Of one token a column.
  static Entries of_columns(MatrixView<const Scalar> x) { return {x.data(), x.cols(), x.rows(), x.outerStride()}; }

 private:
  Entries(const Scalar* data, Index rows, Index cols, Index down) : Base(data, rows, cols, {1, down}) {}
};

/// visit(first, Φ): some entries of φ of tokens, those of a tail first; `width` at a time, or all of them at once where
/// that is 0: another sum for who multiplies by them, and quicker for `few_columns`. The vectors of an embedded score
/// are φ themselves.
template <class F, class Scalar>
void for_feature_panels(const F& feature, PanelMemory<Scalar>& memory, [[maybe_unused]] Index width,
                        MatrixView<Scalar> tail, MatrixView<Scalar> own,
                        std::type_identity_t<Visitor<Index, const Entries<Scalar>&>> visit) {
  const Index d = own.rows(), earlier = tail.cols(), n = earlier + own.cols();
  const MatrixView<Scalar> columns = earlier > 0 ? memory.columns(d, n) : own;
  if (earlier > 0) {
    columns.leftCols(earlier) = tail;
    columns.rightCols(own.cols()) = own;
  }
  if constexpr (degree_of<F> == 1) {  // φ(x) = x
    visit(0, Entries<Scalar>::of_columns(columns));
  } else {
    const auto visit_panel = [&](Index first, MatrixView<const Scalar> some) { visit(first, Entries<Scalar>(some)); };
    if constexpr (requires(MatrixView<Scalar> x) { feature.embed_by_panels(x, x, x, visit_panel); })
      if (width > 0) {
        constexpr Index least =
            2;  // entries of a token alone must not lie side by side: their sum would be another one
        auto tokens = memory.tokens(n, d), panel = memory.panel(std::max(n, least), width).topRows(n),
             prefixes = memory.prefixes(n, degree_of<F> - 1);
        set_copy(tokens, columns.transpose());
        return feature.embed_by_panels(tokens, panel, prefixes, visit_panel);
      }
    const auto features = memory.features(feature.dimension(d), n);
    feature.embed(columns, features);
    visit(0, Entries<Scalar>::of_columns(features));
  }
}

}  // namespace SYMPOW_NAMESPACE::detail
