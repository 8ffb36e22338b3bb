// φ of a segment's queries and keys by panels that never leave the cache.
#pragma once

#include <type_traits>

#include <sympow/core/panel.hpp>
#include <sympow/core/product.hpp>
#include <sympow/core/visitor.hpp>
#include <sympow/feature/feature_map.hpp>

namespace SYMPOW_NAMESPACE::detail {

inline constexpr Index panel_width = 144;  // entries of φ at a time: whole tiles of a product, and whole short sums

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

  /// Memory for so many queries and keys.
  template <class F>
  void reserve(Index rows, Index queries, Index keys) {
    const Index all = queries + keys;
    columns(rows, all);
    if constexpr (degree_of<F> > 1) tokens(all, rows), panel(all, panel_width), prefixes(all, degree_of<F> - 1);
  }
  /// And for the gradients of so many of them.
  template <class F>
  void reserve_vjp(Index rows, Index gradients) {
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

/// visit(first, Φ, Ψ): some entries of φ of the queries and of the keys, those of the tail first, or all of them
/// `at_once`: another sum, whose bits are others, and quicker for `few_columns` of queries. The vectors of an embedded
/// score are φ themselves.
template <class F, class Scalar>
void for_feature_panels(const F& feature, PanelMemory<Scalar>& memory, bool at_once, MatrixView<Scalar> queries,
                        MatrixView<Scalar> tail, MatrixView<Scalar> own,
                        std::type_identity_t<Visitor<Index, const Entries<Scalar>&, const Entries<Scalar>&>> visit) {
  const Index d = queries.rows(), earlier = tail.cols(), keys = earlier + own.cols(), all = queries.cols() + keys;
  const auto visit_columns = [&](MatrixView<Scalar> of_queries, MatrixView<Scalar> of_keys) {
    visit(0, Entries<Scalar>::of_columns(of_queries), Entries<Scalar>::of_columns(of_keys));
  };
  if constexpr (degree_of<F> == 1) {  // φ(x) = x
    const MatrixView<Scalar> columns = earlier > 0 ? memory.columns(d, keys) : own;
    if (earlier > 0) {
      columns.leftCols(earlier) = tail;
      columns.rightCols(own.cols()) = own;
    }
    visit_columns(queries, columns);
  } else if (at_once) {
    const auto features = memory.features(feature.dimension(d), all);
    Index first = 0;
    for (const MatrixView<Scalar>& some : {queries, tail, own}) {
      if (some.cols() > 0) feature.embed(some, features.middleCols(first, some.cols()));
      first += some.cols();
    }
    visit_columns(features.leftCols(queries.cols()), features.rightCols(keys));
  } else {
    auto tokens = memory.tokens(all, d);
    set_copy(tokens.topRows(queries.cols()), queries.transpose());
    set_copy(tokens.middleRows(queries.cols(), earlier), tail.transpose());
    set_copy(tokens.bottomRows(own.cols()), own.transpose());
    const auto visit_both = [&](Index first, MatrixView<const Scalar> features) {
      visit(first, Entries<Scalar>(features.topRows(queries.cols())), Entries<Scalar>(features.bottomRows(keys)));
    };
    if constexpr (requires { feature.embed_by_panels(tokens, tokens, tokens, visit_both); }) {
      auto panel = memory.panel(all, panel_width), prefixes = memory.prefixes(all, degree_of<F> - 1);
      feature.embed_by_panels(tokens, panel, prefixes, visit_both);
    } else {
      auto columns = memory.columns(d, all), features = memory.features(feature.dimension(d), all);
      set_copy(columns, tokens.transpose());
      feature.embed(columns, features);
      visit_columns(features.leftCols(queries.cols()), features.rightCols(keys));
    }
  }
}

}  // namespace SYMPOW_NAMESPACE::detail
