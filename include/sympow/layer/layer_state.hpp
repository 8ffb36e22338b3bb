// Token after token through an attention layer.
#pragma once

#include <algorithm>
#include <iosfwd>

#include <sympow/layer/attention_layer.hpp>

namespace SYMPOW_NAMESPACE {

namespace detail {

/// A state for every key head, where there are states.
template <class Scalar, class F, bool has_states>
struct StatesOfLayer {
  struct None {};
  using type = None;
};
template <class Scalar, class F>
struct StatesOfLayer<Scalar, F, true> {
  using type = std::vector<State<Scalar, F>>;
};

}  // namespace detail

/// What a layer remembers of the tokens that it has seen: a `State` for every key head or, where the feature map has
/// none under the recipe's transition, as under softmax, what all tokens were projected to.
///
///     LayerState<float, decltype(layer)> state(layer);
template <class Scalar, class L>
class LayerState {
  using Layer = std::remove_const_t<L>;
  using F = typename Layer::Feature;
  using R = typename Layer::Rule;

 public:
  /// Whether its memory is the same however many tokens it has seen.
  static constexpr bool is_constant = has_state_forms<F, TransitionOf<R, Scalar>>;

  /// Of so many sequences that have no token yet. Throws `ShapeMismatch`.
  explicit LayerState(const Layer& layer, Index sequences = 1) : sequences_(sequences) {
    if (sequences < 1) detail::raise<ShapeMismatch>("layer state: sequences is ", sequences, ", must be at least 1");
    if constexpr (is_constant)
      for (Index n = 0; n < sequences * layer.shape().key_heads; ++n)
        states_.emplace_back(layer.feature(), layer.shape().d, layer.shape().e);
    else
      seen_.resize(layer.projected() - layer.first_key(), 0);
  }

  [[nodiscard]] Index sequences() const { return sequences_; }  ///< of every call
  [[nodiscard]] Index tokens() const { return tokens_; }        ///< seen, of each sequence
  /// The states, sequences × key heads.
  [[nodiscard]] const auto& states() const
    requires is_constant
  {
    return states_;
  }

  template <FeatureMap G, Recipe Q, class Normalization, class S, class M>
  friend void step(const AttentionLayer<G, Q, Normalization>& layer, const LayerWeights<S>& weights,
                   const std::type_identity_t<ConstBatch<S>>& X, LayerState<S, M>& state,
                   LayerPass<std::type_identity_t<S>>& pass, std::type_identity_t<Batch<S>> Y);
  template <class S, class M>
  friend void save(const LayerState<S, M>& state, std::ostream& out);
  template <class S, class M>
  friend void load(LayerState<S, M>& state, std::istream& in);

 private:
  /// All seen tokens' keys, values and logits, with those of this call, which are the last `n` of each sequence.
  detail::TokenColumns<const Scalar> seen_with(const Matrix<Scalar>& projected, Index n) {
    const Index rows = seen_.rows(), capacity = seen_.cols() / sequences_;
    if (tokens_ + n > capacity) {
      const Index more = std::max(tokens_ + n, 2 * capacity);
      Matrix<Scalar> grown(rows, more * sequences_);
      for (Index b = 0; b < sequences_ && tokens_ > 0; ++b)
        grown.middleCols(b * more, tokens_) = seen_.middleCols(b * capacity, tokens_);
      seen_.swap(grown);
    }
    const Index columns = seen_.cols() / sequences_;
    for (Index b = 0; b < sequences_; ++b)
      seen_.middleCols(b * columns + tokens_, n) = projected.middleCols(b * n, n).bottomRows(rows);
    return {seen_.data(), rows, sequences_, tokens_ + n, columns};
  }

  Index sequences_, tokens_ = 0;
  typename detail::StatesOfLayer<Scalar, F, is_constant>::type states_;
  Matrix<Scalar> seen_;  // without states
};

/// layer(X) of the next tokens of every sequence, one or many, after those that the state has seen; which it then has
/// seen, too.
///
/// Shapes: X, Y: d_model × (sequences · n). Equal to `apply` of all tokens at once by the row rule. Cost: 2 operations
/// a weight and token, and `attend` from a state: of `recurrent` for few tokens, of `chunked` for many; without states
/// that of the attention form, which grows with the tokens seen. Throws as `apply` does: then the state has not seen
/// them.
template <FeatureMap F, Recipe R, class Normalization, class Scalar, class L>
void step(const AttentionLayer<F, R, Normalization>& layer, const LayerWeights<Scalar>& weights,
          const std::type_identity_t<ConstBatch<Scalar>>& X, LayerState<Scalar, L>& state,
          LayerPass<std::type_identity_t<Scalar>>& pass, std::type_identity_t<Batch<Scalar>> Y) {
  using Layer = AttentionLayer<F, R, Normalization>;
  static_assert(std::same_as<std::remove_const_t<L>, Layer>, "the state is that of another layer");
  const Index B = state.sequences();
  detail::begin_layer(layer, weights, X, B, pass, Y);
  const LayerShape& n = layer.shape();
  const Index tokens = X.cols() / B;
  const auto projected = detail::columns_of<const Scalar>(std::as_const(pass.projected), B);
  const auto Q = projected.heads(0, n.heads, n.d);
  const auto rows = detail::columns_of<Scalar>(pass.rows, B).heads(0, n.heads, n.e);
  if constexpr (LayerState<Scalar, Layer>::is_constant) {
    const detail::LayerHeads<const Scalar> heads(layer, projected, layer.first_key());
    detail::finish_layer(layer, weights, heads, pass, Y, [&](const auto& K, const auto& V, const auto& transition_of) {
      attend<Normalization>(layer.feature(), transition_of,
                            {.Q = Q,
                             .K = K,
                             .V = V,
                             .states = state.states_,
                             .Y = rows,
                             .workspaces = pass.workspaces,
                             .options = layer.batch_options()});
    });
  } else {
    const detail::LayerHeads<const Scalar> heads(layer, state.seen_with(pass.projected, tokens), 0);
    BatchOptions options = layer.batch_options();
    options.head.mask = causal(state.tokens());
    detail::finish_layer(layer, weights, heads, pass, Y, [&](const auto& K, const auto& V, const auto& transition_of) {
      attend<Normalization>(layer.feature(),
                            [&](Index b, Index h) { return transition_of(b, h / (n.heads / n.key_heads)); },
                            {.Q = Q, .K = K, .V = V, .Y = rows, .workspaces = pass.workspaces, .options = options});
    });
  }
  state.tokens_ += tokens;
}

}  // namespace SYMPOW_NAMESPACE
