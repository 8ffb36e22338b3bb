// φ of a segment's queries and keys by panels that never leave the cache.
#pragma once

#include <sympow/attention/panel.hpp>
#include <sympow/attention/scaled.hpp>
#include <sympow/core/product.hpp>

namespace sympow::detail {

inline constexpr Index panel_width = 144;  // entries of φ at a time: whole tiles of a product, and whole short sums

/// Memory for panels.
template <class Scalar>
struct PanelMemory {
  Panel<Scalar> tokens;    ///< n × d, one channel of the tokens a column
  Panel<Scalar> columns;   ///< d × n, one token a column
  Panel<Scalar> panel;     ///< n × width, some entries of φ
  Panel<Scalar> prefixes;  ///< n × (P - 1), on the way there
  Panel<Scalar> features;  ///< D × n, all entries

  /// Memory for so many queries and keys.
  template <class F>
  void reserve(Index rows, Index queries, Index keys) {
    const Index all = queries + keys;
    columns(rows, all);
    if constexpr (degree_of<F> > 1) tokens(all, rows), panel(all, panel_width), prefixes(all, degree_of<F> - 1);
  }
};

/// visit(first, Φ, Ψ): some entries of φ, one token a row, of the queries and of the keys, those of the tail first. The vectors of an embedded
/// score are φ themselves.
template <class F, class Scalar, class Visit>
void for_feature_panels(const F& feature, PanelMemory<Scalar>& memory, MatrixView<Scalar> queries,
                        MatrixView<Scalar> tail, MatrixView<Scalar> own, const Visit& visit) {
  const Index d = queries.rows(), earlier = tail.cols(), keys = earlier + own.cols(), all = queries.cols() + keys;
  if constexpr (degree_of<F> == 1) {  // φ(x) = x
    MatrixView<Scalar> columns = earlier > 0 ? memory.columns(d, keys) : own;
    if (earlier > 0) {
      columns.leftCols(earlier) = tail;
      columns.rightCols(own.cols()) = own;
    }
    visit(0, queries.transpose(), columns.transpose());
  } else if (all <= 1) {
    const MatrixView<Scalar>& column = queries.cols() == 1 ? queries : earlier == 1 ? tail : own;
    auto features = memory.features(feature.dimension(d), all);
    feature.embed(column, features);
    visit(0, features.leftCols(queries.cols()).transpose(), features.rightCols(keys).transpose());
  } else {
    auto tokens = memory.tokens(all, d);
    set_copy(tokens.topRows(queries.cols()), queries.transpose());
    set_copy(tokens.middleRows(queries.cols(), earlier), tail.transpose());
    set_copy(tokens.bottomRows(own.cols()), own.transpose());
    const auto visit_both = [&](Index first, const auto& features) {
      visit(first, features.topRows(queries.cols()), features.bottomRows(keys));
    };
    if constexpr (requires { feature.embed_by_panels(tokens, tokens, tokens, visit_both); }) {
      auto panel = memory.panel(all, panel_width), prefixes = memory.prefixes(all, degree_of<F> - 1);
      feature.embed_by_panels(tokens, panel, prefixes, visit_both);
    } else {
      auto columns = memory.columns(d, all), features = memory.features(feature.dimension(d), all);
      set_copy(columns, tokens.transpose());
      feature.embed(columns, features);
      visit_both(0, features.transpose());
    }
  }
}

}  // namespace sympow::detail
