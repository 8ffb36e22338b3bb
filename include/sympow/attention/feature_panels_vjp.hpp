// φ of a segment's queries and keys by panels, and back from gradients of φ to those of the tokens.
#pragma once

#include <sympow/attention/feature_panels.hpp>

namespace SYMPOW_NAMESPACE::detail {

/// visit(first, Φ, Ψ, dΦ): some entries of φ of the queries and of the keys as in `for_feature_panels`, and memory for
/// gradients of the same entries of the first m of all tokens, the queries before the keys, m × w, tokens down, which
/// visit sets. Then d_columns, d × m, are those of these tokens: d_columns.col(t) = Dφ(x_t)ᵀ dφ_t. The vectors of an
/// embedded score are φ themselves, and so are their gradients. No allocation with `reserve` and `reserve_vjp`, but for
/// a map without panels whose D grows.
template <class F, class Scalar>
void for_feature_panels_vjp(
    const F& feature, PanelMemory<Scalar>& memory, MatrixView<Scalar> queries, MatrixView<Scalar> keys,
    MatrixView<Scalar> d_columns,
    std::type_identity_t<Visitor<Index, const Entries<Scalar>&, const Entries<Scalar>&, MatrixView<Scalar>>> visit) {
  const Index d = queries.rows(), all = queries.cols() + keys.cols(), m = d_columns.cols();
  if constexpr (degree_of<F> == 1) {  // φ(x) = x
    const auto gradients = memory.d_panel(m, d);
    visit(0, Entries<Scalar>::of_columns(queries), Entries<Scalar>::of_columns(keys), gradients);
    set_copy(d_columns, gradients.transpose());
  } else if constexpr (requires { F::vjp_columns(d); }) {
    auto tokens = memory.tokens(all, d), panel = memory.panel(all, panel_width),
         prefixes = memory.prefixes(all, degree_of<F> - 1), d_tokens = memory.d_tokens(m, d),
         d_panel = memory.d_panel(m, panel_width), d_scratch = memory.d_scratch(m, F::vjp_columns(d));
    set_copy(tokens.topRows(queries.cols()), queries.transpose());
    set_copy(tokens.bottomRows(keys.cols()), keys.transpose());
    feature.embed_by_panels_vjp(tokens, panel, prefixes, d_panel, d_scratch, d_tokens,
                                [&](Index first, MatrixView<const Scalar> features, MatrixView<Scalar> gradients) {
                                  visit(first, Entries<Scalar>(features.topRows(queries.cols())),
                                        Entries<Scalar>(features.bottomRows(keys.cols())), gradients);
                                });
    set_copy(d_columns, d_tokens.transpose());
  } else {
    const Index D = feature.dimension(d);
    auto columns = memory.columns(d, all), features = memory.features(D, all), d_features = memory.d_features(D, m),
         gradients = memory.d_panel(m, D);
    columns.leftCols(queries.cols()) = queries;
    columns.rightCols(keys.cols()) = keys;
    feature.embed(columns, features);
    visit(0, Entries<Scalar>::of_columns(features.leftCols(queries.cols())),
          Entries<Scalar>::of_columns(features.rightCols(keys.cols())), gradients);
    set_copy(d_features, gradients.transpose());
    feature.embed_vjp(columns.leftCols(m), features.leftCols(m), d_features, d_columns);
  }
}

/// The same of all tokens without φ: visit(first, dΦ) sets the gradients of some entries, m × w.
template <class F, class Scalar>
void for_feature_gradients(const F& feature, PanelMemory<Scalar>& memory, MatrixView<Scalar> columns,
                           MatrixView<Scalar> d_columns,
                           std::type_identity_t<Visitor<Index, MatrixView<Scalar>>> visit) {
  if constexpr (degree_of<F> > 1 && requires { F::vjp_columns(1); }) {
    const Index d = columns.rows(), m = columns.cols();
    auto tokens = memory.tokens(m, d), d_tokens = memory.d_tokens(m, d), d_panel = memory.d_panel(m, panel_width),
         d_scratch = memory.d_scratch(m, F::vjp_columns(d));
    set_copy(tokens, columns.transpose());
    feature.vjp_by_panels(tokens, d_panel, d_scratch, d_tokens, visit);
    set_copy(d_columns, d_tokens.transpose());
  } else {
    for_feature_panels_vjp(feature, memory, columns, columns.leftCols(0), d_columns,
                           [&](Index first, const Entries<Scalar>&, const Entries<Scalar>&,
                               MatrixView<Scalar> gradients) { visit(first, gradients); });
  }
}

/// The same of one gradient z of φ for all tokens: d_columns.col(t) = Dφ(x_t)ᵀ z.
template <class F, class Scalar>
void set_feature_gradients(const F& feature, PanelMemory<Scalar>& memory, MatrixView<Scalar> columns,
                           ColumnView<const Scalar> z, MatrixView<Scalar> d_columns) {
  if constexpr (has_form<F, Scalar>) {
    const auto form = memory.form(columns.rows(), columns.rows());
    feature.set_form(z, form);
    set_product(d_columns, form, columns);
  } else {
    for_feature_gradients(feature, memory, columns, d_columns, [&](Index first, MatrixView<Scalar> gradients) {
      for (Index c = 0; c < gradients.cols(); ++c) gradients.col(c).setConstant(z[first + c]);
    });
  }
}

}  // namespace SYMPOW_NAMESPACE::detail
