// Gradients of an attention layer.
#pragma once

#include <sympow/layer/attention_layer.hpp>

#include <sympow/attention/batch_vjp.hpp>

namespace SYMPOW_NAMESPACE {

/// Scratch of the backward pass of a layer, of one call at a time.
template <class Scalar>
struct LayerVjpWorkspace {
  Matrix<Scalar> d_projected,        ///< gradients in [Q; K; V; Z] of every token
      d_rows;                        ///< H e × tokens, those in the rows that W_O is given
  VjpWorkspaces<Scalar> workspaces;  ///< of `attend_vjp`
};

namespace detail {

/// dy of y ← y / √(|y|²/e + ε) = y / r, from the rows after it and r: (dy - y (y·dy)/e) / r.
template <class Scalar>
void normalize_rows_vjp(const Matrix<Scalar>& rows, const Matrix<Scalar>& lengths, Matrix<Scalar>& d_rows) {
  const Index heads = lengths.rows(), e = rows.rows() / heads;
  for (Index t = 0; t < rows.cols(); ++t) {
    const auto y = rows.col(t).reshaped(e, heads);
    auto dy = d_rows.col(t).reshaped(e, heads);
    for (Index h = 0; h < heads; ++h) {
      dy.col(h) -= y.col(h) * (y.col(h).dot(dy.col(h)) / static_cast<Scalar>(e));
      dy.col(h) /= lengths(h, t);
    }
  }
}

}  // namespace detail

/// The gradients of `apply`, from dY = ∂loss/∂Y, X and what its pass has left.
///
///     gradients += those of all weights,   dX = ∂loss/∂X
///
/// Shapes: dY, dX: d_model × (sequences · T), dX of memory of its own. Cost: 4 operations a weight and token, and
/// `attend_vjp`. Throws `ShapeMismatch`, and `InvalidArgument` for the pass of another layer, before anything is
/// touched, and what `attend_vjp` throws; then `gradients` are as far as it came.
template <FeatureMap F, Recipe R, class Normalization, class Scalar>
void apply_vjp(const AttentionLayer<F, R, Normalization>& layer, const LayerWeights<Scalar>& weights,
               const std::type_identity_t<ConstBatch<Scalar>>& X, Index sequences,
               const LayerPass<std::type_identity_t<Scalar>>& pass, const std::type_identity_t<ConstBatch<Scalar>>& dY,
               LayerWeights<std::type_identity_t<Scalar>>& gradients, std::type_identity_t<Batch<Scalar>> dX,
               LayerVjpWorkspace<std::type_identity_t<Scalar>>& work) {
  using Layer = AttentionLayer<F, R, Normalization>;
  layer.check(weights);
  layer.check(gradients);
  detail::check_tokens(layer, "X", X, sequences);
  const auto agree = [](const char* name, const auto& x, const auto& y) {
    detail::check_size(std::string("rows of ") + name, x.rows(), y.rows(), "those of the forward pass");
    detail::check_size(std::string("columns of ") + name, x.cols(), y.cols(), "those of the forward pass");
  };
  agree("dY", dY, X);
  agree("dX", dX, X);
  detail::check_size("columns of the pass", pass.rows.cols(), X.cols(), "columns of X, one a token");
  detail::check_size("rows of the pass", pass.projected.rows(), layer.projected(),
                     "numbers that a token is projected to");
  const auto* of_heads = std::any_cast<Tapes<Scalar, F>>(&pass.heads);
  if (of_heads == nullptr)
    detail::raise<InvalidArgument>("layer: the pass is none that apply() of this layer has left");
  const LayerShape& n = layer.shape();

  detail::resize_safely(work.d_rows, pass.rows.rows(), pass.rows.cols());
  detail::resize_safely(work.d_projected, pass.projected.rows(), pass.projected.cols());
  gradients.out.noalias() += dY * pass.rows.transpose();
  work.d_rows.noalias() = weights.out.transpose() * dY;
  if (layer.normalizes_rows()) detail::normalize_rows_vjp(pass.rows, pass.lengths, work.d_rows);

  const auto columns = detail::columns_of<const Scalar>(pass.projected, sequences);
  const auto d_columns = detail::columns_of<Scalar>(work.d_projected, sequences);
  const detail::LayerHeads<const Scalar> heads(layer, columns, layer.first_key());
  const detail::LayerHeads<Scalar> d_heads(layer, d_columns, layer.first_key());
  const auto d_rows = detail::columns_of<const Scalar>(std::as_const(work.d_rows), sequences).heads(0, n.heads, n.e);
  const Index group = n.heads / n.key_heads;
  const auto transition_of = [&](Index b, Index h) {
    return layer.recipe().transition(heads.tokens(weights, b, h / group));
  };
  const auto take_back = [&](const auto& K, const auto& V) {
    return attend_vjp<Normalization>(layer.feature(), transition_of,
                                     {.Q = columns.heads(0, n.heads, n.d),
                                      .K = K,
                                      .V = V,
                                      .dY = d_rows,
                                      .tapes = *of_heads,
                                      .dQ = d_columns.heads(0, n.heads, n.d),
                                      .dK = d_heads.K,
                                      .dV = d_heads.V,
                                      .workspaces = work.workspaces,
                                      .options = layer.batch_options()});
  };
  auto found = [&] {
    if constexpr (Layer::writes) {
      const auto [K, V] = detail::written_heads<const Scalar>(layer, pass.written, sequences);
      return take_back(K, V);
    } else {
      return take_back(heads.K, heads.V);
    }
  }();
  for (Index b = 0; b < sequences; ++b)
    for (Index g = 0; g < n.key_heads; ++g) {
      auto* const of_group = &found.transitions[static_cast<std::size_t>((b * n.key_heads + g) * group)];
      const HeadTokens<Scalar> x = heads.tokens(weights, b, g);
      if (group > 1) {
        const auto A = layer.recipe().transition(x);
        for (Index r = 1; r < group; ++r) A.join(of_group[r], {0, x.keys.cols()}, of_group[0]);
      }
      HeadTokensGradient<Scalar> dx{d_heads.Z.head(b, g), d_heads.K.head(b, g), d_heads.V.head(b, g),
                                    Parameters<Scalar>(gradients.recipe.col(g).data(), gradients.recipe.rows())};
      layer.recipe().transition_vjp(x, of_group[0], dx);
    }
  gradients.in.noalias() += work.d_projected * X.transpose();
  dX.noalias() = weights.in.transpose() * work.d_projected;
}

}  // namespace SYMPOW_NAMESPACE
