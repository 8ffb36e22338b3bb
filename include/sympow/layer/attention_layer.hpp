// An attention layer: heads whose queries, keys, values and transitions are projections of tokens.
#pragma once

#include <any>
#include <cmath>
#include <string>
#include <utility>

#include <sympow/layer/layer_weights.hpp>
#include <sympow/layer/recipe.hpp>

#include <sympow/attention/batch.hpp>

namespace SYMPOW_NAMESPACE {

/// Run-time choices of a layer.
struct LayerOptions {
  bool normalizes_rows = false;  ///< y ← y / √(|y|²/e + 10⁻⁵) in every head: for sums, whose rows grow with T
  BatchOptions attention = {};   ///< `head.scale` stands beside d^{-1/2}
};

/// What a forward pass leaves for the backward pass, and scratch; of one call at a time, of any layer.
template <class Scalar>
struct LayerPass {
  Matrix<Scalar> projected;       ///< [Q; K; V; Z] of every token
  Matrix<Scalar> written;         ///< [K; V] of every key head as they go into the state, if the recipe writes
  Matrix<Scalar> rows;            ///< H e × tokens, what W_O is given
  Matrix<Scalar> lengths;         ///< H × tokens, what rows were divided by if the layer normalises them
  std::any heads;                 ///< what `attend` leaves, `Tapes<Scalar, F>` of the layer's feature map
  Workspaces<Scalar> workspaces;  ///< of `attend`
};

/// An attention layer without a residual path:
///
///     [Q; K; V; Z] = [W_Q; W_K; W_V; W_Z] X,   A_h = recipe(Z_h),   Y_h = form(feature, A_h, Q_h, K_g, V_g, d^{-1/2})
///     layer(X) = W_O [Y_1; …; Y_H]
///
/// by feature map and recipe: `SymmetricPower<2>{}` with `ForgetGate{} * LearnedRotary(theta, Pairing::interleaved)` is
/// conformal-sympow, `Exponential{}` with `Fixed(rotary(theta, Pairing::interleaved))` a softmax layer with rotary
/// positions. Tokens are columns, those of a sequence one after the other; all sequences of a call have the same
/// number. Immutable; weights are given to every call. Source: Conformal Transformations, §3.
template <FeatureMap F, Recipe R, class Normalization = DefaultNormalization>
class AttentionLayer : public LayerLayout {
 public:
  using Feature = F;
  using Rule = R;  ///< the recipe
  static constexpr bool writes = R::writes;

  /// Throws `ShapeMismatch` for a size that is not positive and heads that key heads do not divide.
  AttentionLayer(LayerShape shape, F feature, R recipe, LayerOptions options = {})
      : LayerLayout(shape, recipe.logits(shape.d), recipe.parameters(shape.d)),
        feature_(std::move(feature)),
        recipe_(std::move(recipe)),
        options_(options) {
    options_.attention.head.scale /= std::sqrt(static_cast<double>(shape.d));
  }

  [[nodiscard]] const F& feature() const { return feature_; }                      ///< the feature map
  [[nodiscard]] const R& recipe() const { return recipe_; }                        ///< the recipe
  [[nodiscard]] bool normalizes_rows() const { return options_.normalizes_rows; }  ///< see `LayerOptions`
  /// The options of its batch, with d^{-1/2} in the scale.
  [[nodiscard]] const BatchOptions& batch_options() const { return options_.attention; }

  /// Weights to begin with: matrices of numbers that normal() gives, times `deviation` (`deviation_out` in W_O), and
  /// what the recipe says.
  template <class Scalar, class Normal>
  [[nodiscard]] LayerWeights<Scalar> initial(Normal&& normal, double deviation, double deviation_out) const {
    LayerWeights<Scalar> w = zeros<Scalar>();
    for (Scalar& x : w.in.reshaped()) x = static_cast<Scalar>(deviation * normal());
    for (Scalar& x : w.out.reshaped()) x = static_cast<Scalar>(deviation_out * normal());
    for (Index g = 0; g < shape().key_heads; ++g)
      recipe_.initialize(g, shape().key_heads, shape().d, Parameters<Scalar>(w.recipe.col(g).data(), w.recipe.rows()));
    return w;
  }

 private:
  F feature_;
  R recipe_;
  LayerOptions options_;
};

namespace detail {

/// Columns of tokens: those of a sequence one after the other, with room for some more.
template <class S>
struct TokenColumns {
  S* data;
  Index rows, sequences, tokens, capacity;

  /// `count` heads of so many numbers from row `first` on.
  [[nodiscard]] Heads<S> heads(Index first, Index count, Index numbers) const {
    return Heads<S>::strided(data + first, sequences, tokens, count, numbers, {capacity * rows, rows, numbers});
  }
};
/// All columns of X.
template <class S, class X>
TokenColumns<S> columns_of(X& x, Index sequences) {
  const Index tokens = x.cols() / sequences;
  return {x.data(), x.rows(), sequences, tokens, tokens};
}

/// The heads of a call of a layer, of what tokens were projected to; S is const where they are only read. `first` is
/// the row of the keys.
template <class S>
struct LayerHeads {
  using Scalar = std::remove_const_t<S>;
  Heads<S> K, V, Z;

  LayerHeads(const LayerLayout& layer, const TokenColumns<S>& x, Index first)
      : K(x.heads(first, layer.shape().key_heads, layer.shape().d)),
        V(x.heads(first + layer.first_value() - layer.first_key(), layer.shape().key_heads, layer.shape().e)),
        Z(x.heads(first + layer.first_logit() - layer.first_key(), layer.shape().key_heads, layer.logits())) {}

  /// Key head g of sequence b for the recipe.
  [[nodiscard]] HeadTokens<Scalar> tokens(const LayerWeights<Scalar>& w, Index b, Index g) const {
    return {Z.head(b, g), K.head(b, g), V.head(b, g), Parameters<const Scalar>(w.recipe.col(g).data(), w.recipe.rows()),
            g};
  }
};

/// Keys and values of every key head as they go into the state.
template <class S, class X>
std::pair<Heads<S>, Heads<S>> written_heads(const LayerLayout& layer, X& written, Index sequences) {
  const LayerShape& n = layer.shape();
  const auto columns = columns_of<S>(written, sequences);
  return {columns.heads(0, n.key_heads, n.d), columns.heads(n.key_heads * n.d, n.key_heads, n.e)};
}

/// Throws unless X is tokens of so many sequences.
template <class X>
void check_tokens(const LayerLayout& layer, const char* name, const X& x, Index sequences) {
  check_size(std::string("rows of ") + name, x.rows(), layer.shape().d_model, "d_model of the layer");
  if (sequences < 1) raise<ShapeMismatch>("layer: sequences is ", sequences, ", must be at least 1");
  if (x.cols() % sequences != 0)
    raise<ShapeMismatch>("layer: columns of ", name, " are ", x.cols(), ", must be a multiple of the ", sequences,
                         " sequences");
}

/// y ← y / √(|y|²/e + 10⁻⁵) in every head, `lengths` what they are divided by.
template <class Scalar>
void normalize_rows(Index heads, Matrix<Scalar>& rows, Matrix<Scalar>& lengths) {
  const Index e = rows.rows() / heads;
  lengths.resize(heads, rows.cols());
  for (Index t = 0; t < rows.cols(); ++t) {
    auto y = rows.col(t).reshaped(e, heads);
    lengths.col(t) = (y.colwise().squaredNorm() / static_cast<Scalar>(e)).transpose().array() + Scalar(1e-5);
    lengths.col(t) = lengths.col(t).cwiseSqrt();
    y.array().rowwise() /= lengths.col(t).transpose().array();
  }
}

/// Y = W_O rows, attend(K, V, transition_of) having made the rows from keys and values as they go into the state.
template <class Layer, class Scalar, class Attend>
void finish_layer(const Layer& layer, const LayerWeights<Scalar>& w, const LayerHeads<const Scalar>& heads,
                  LayerPass<Scalar>& pass, Batch<Scalar> Y, const Attend& attend) {
  const Index B = heads.K.sequences(), G = heads.K.heads();
  const auto transition_of = [&](Index b, Index g) { return layer.recipe().transition(heads.tokens(w, b, g)); };
  if constexpr (Layer::writes) {
    resize_safely(pass.written, layer.first_logit() - layer.first_key(), B * heads.K.length(0));
    const auto [K, V] = written_heads<Scalar>(layer, pass.written, B);
    for (Index b = 0; b < B; ++b)
      for (Index g = 0; g < G; ++g) layer.recipe().write(heads.tokens(w, b, g), K.head(b, g), V.head(b, g));
    attend(Heads<const Scalar>(K), Heads<const Scalar>(V), transition_of);
  } else {
    attend(heads.K, heads.V, transition_of);
  }
  if (layer.normalizes_rows()) normalize_rows(layer.shape().heads, pass.rows, pass.lengths);
  Y.noalias() = w.out * pass.rows;
}

/// Checks a call and projects its tokens.
template <class Scalar>
void begin_layer(const LayerLayout& layer, const LayerWeights<Scalar>& w, const ConstBatch<Scalar>& X, Index sequences,
                 LayerPass<Scalar>& pass, const Batch<Scalar>& Y) {
  layer.check(w);
  check_tokens(layer, "X", X, sequences);
  check_size("rows of Y", Y.rows(), X.rows(), "rows of X");
  check_size("columns of Y", Y.cols(), X.cols(), "columns of X, one a token");
  resize_safely(pass.projected, layer.projected(), X.cols());
  resize_safely(pass.rows, w.out.cols(), X.cols());
  pass.projected.noalias() = w.in * X;
}

}  // namespace detail

/// layer(X), writing the outputs of all tokens of a batch, and to `pass` what `apply_vjp` needs.
///
/// Shapes: X, Y: d_model × (sequences · T). Cost: 2 operations a weight and token, and `attend`, whose rows and states
/// stay in `pass`; memory as `Tape`. Throws `ShapeMismatch` before anything is touched, and what `attend`
/// throws.
template <FeatureMap F, Recipe R, class Normalization, class Scalar>
void apply(const AttentionLayer<F, R, Normalization>& layer, const LayerWeights<Scalar>& weights,
           const std::type_identity_t<ConstBatch<Scalar>>& X, Index sequences,
           LayerPass<std::type_identity_t<Scalar>>& pass, std::type_identity_t<Batch<Scalar>> Y) {
  detail::begin_layer(layer, weights, X, sequences, pass, Y);
  const auto columns = detail::columns_of<const Scalar>(std::as_const(pass.projected), sequences);
  const detail::LayerHeads<const Scalar> heads(layer, columns, layer.first_key());
  const LayerShape& n = layer.shape();
  using OfHeads = Tapes<Scalar, F>;
  OfHeads* of_heads = std::any_cast<OfHeads>(&pass.heads);
  if (of_heads == nullptr) of_heads = &pass.heads.template emplace<OfHeads>();
  detail::finish_layer(layer, weights, heads, pass, Y, [&](const auto& K, const auto& V, const auto& transition_of) {
    attend<Normalization>(layer.feature(),
                          [&](Index b, Index h) { return transition_of(b, h / (n.heads / n.key_heads)); },
                          {.Q = columns.heads(0, n.heads, n.d),
                           .K = K,
                           .V = V,
                           .Y = detail::columns_of<Scalar>(pass.rows, sequences).heads(0, n.heads, n.e),
                           .tapes = *of_heads,
                           .workspaces = pass.workspaces,
                           .options = layer.batch_options()});
  });
}

}  // namespace SYMPOW_NAMESPACE
