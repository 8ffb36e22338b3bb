// φ of a segment's queries and keys by panels that never leave the cache.
#pragma once

#include <sympow/attention/workspace.hpp>

namespace sympow::detail {

inline constexpr Index panel_width = 144;  // entries of φ at a time: whole tiles of a product, and whole short sums

/// Memory for so many queries and keys.
template <class F, class Scalar>
void reserve_feature_panels(Workspace<Scalar>& work, Index d, Index queries, Index keys) {
  const Index all = queries + keys;
  work.columns(d, all);
  if constexpr (degree_of<F> > 1)
    work.tokens(all, d), work.panel(all, panel_width), work.prefixes(all, degree_of<F> - 1);
}

/// visit(first, Φ, Ψ): some entries of φ, one token a row, of the queries and of the keys, those of the tail first.
template <class F, class Scalar, class Queries, class Tail, class Keys, class Visit>
void for_feature_panels(const F& feature, Workspace<Scalar>& work, const Queries& queries, const Tail& tail,
                        const Keys& own, const Visit& visit) {
  const Index d = queries.rows(), earlier = tail.cols(), keys = earlier + own.cols(), all = queries.cols() + keys;
  if constexpr (degree_of<F> == 1) {  // φ(x) = x
    auto columns = work.columns(d, keys);
    columns.leftCols(earlier) = tail;
    columns.rightCols(own.cols()) = own;
    visit(0, queries.transpose(), columns.transpose());
  } else {
    auto tokens = work.tokens(all, d);
    set_copy(tokens.topRows(queries.cols()), queries.transpose());
    set_copy(tokens.middleRows(queries.cols(), earlier), tail.transpose());
    set_copy(tokens.bottomRows(own.cols()), own.transpose());
    const auto visit_both = [&](Index first, const auto& features) {
      visit(first, features.topRows(queries.cols()), features.bottomRows(keys));
    };
    if constexpr (requires { feature.embed_by_panels(tokens, tokens, tokens, visit_both); }) {
      if (all > 1) {
        auto panel = work.panel(all, panel_width), prefixes = work.prefixes(all, degree_of<F> - 1);
        return feature.embed_by_panels(tokens, panel, prefixes, visit_both);
      }
    }
    auto columns = work.columns(d, all), features = work.features(feature.dimension(d), all);
    set_copy(columns, tokens.transpose());
    feature.embed(columns, features);
    visit_both(0, features.transpose());
  }
}

}  // namespace sympow::detail
