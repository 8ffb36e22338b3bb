// An attention layer whose feature map and recipe are chosen at run time.
#pragma once

#include <any>
#include <functional>
#include <memory>

#include <sympow/layer/attention_layer_vjp.hpp>
#include <sympow/layer/layer_state_file.hpp>

namespace SYMPOW_NAMESPACE {

namespace detail {

/// What a layer does, for numbers of type S; a state is a `LayerState` of the layer.
template <class S>
struct LayerInterface {
  virtual ~LayerInterface() = default;
  virtual LayerWeights<S> initial(const std::function<double()>&, double, double) const = 0;
  virtual void apply(const LayerWeights<S>&, const ConstBatch<S>&, Index, LayerPass<S>&, Batch<S>) const = 0;
  virtual void apply_vjp(const LayerWeights<S>&, const ConstBatch<S>&, Index, const LayerPass<S>&, const ConstBatch<S>&,
                         LayerWeights<S>&, Batch<S>, LayerVjpWorkspace<S>&) const = 0;
  virtual std::any state(Index sequences) const = 0;
  virtual void step(const LayerWeights<S>&, const ConstBatch<S>&, std::any& state, LayerPass<S>&, Batch<S>) const = 0;
  virtual Index tokens(const std::any& state) const = 0;
  virtual void save(const std::any& state, std::ostream&) const = 0;
  virtual void load(std::any& state, std::istream&) const = 0;
};

template <class S, class Layer>
class LayerImplementation final : public LayerInterface<S> {
  using State = LayerState<S, Layer>;

 public:
  explicit LayerImplementation(Layer layer) : layer_(std::move(layer)) {}

  LayerWeights<S> initial(const std::function<double()>& normal, double deviation,
                          double deviation_out) const override {
    return layer_.template initial<S>(normal, deviation, deviation_out);
  }
  void apply(const LayerWeights<S>& w, const ConstBatch<S>& X, Index sequences, LayerPass<S>& pass,
             Batch<S> Y) const override {
    sympow::apply(layer_, w, X, sequences, pass, Y);
  }
  void apply_vjp(const LayerWeights<S>& w, const ConstBatch<S>& X, Index sequences, const LayerPass<S>& pass,
                 const ConstBatch<S>& dY, LayerWeights<S>& gradients, Batch<S> dX,
                 LayerVjpWorkspace<S>& work) const override {
    sympow::apply_vjp(layer_, w, X, sequences, pass, dY, gradients, dX, work);
  }
  std::any state(Index sequences) const override { return State(layer_, sequences); }
  void step(const LayerWeights<S>& w, const ConstBatch<S>& X, std::any& state, LayerPass<S>& pass,
            Batch<S> Y) const override {
    State* const own = std::any_cast<State>(&state);
    if (own == nullptr) raise<InvalidArgument>("layer: the state is that of another layer");
    sympow::step(layer_, w, X, *own, pass, Y);
  }
  Index tokens(const std::any& state) const override { return std::any_cast<const State&>(state).tokens(); }
  void save(const std::any& state, std::ostream& out) const override {
    sympow::save(std::any_cast<const State&>(state), out);
  }
  void load(std::any& state, std::istream& in) const override { sympow::load(std::any_cast<State&>(state), in); }

 private:
  Layer layer_;
};

}  // namespace detail

/// Any `AttentionLayer` for numbers of type S, its other types forgotten: a value, for layers that are chosen at run
/// time, and for code that is compiled once for all of them.
///
///     AnyLayer<float> layer = AttentionLayer(shape, Exponential{}, Fixed(rotary(theta, Pairing::interleaved)));
///     if (gated) layer = AttentionLayer(shape, SymmetricPower<2>{}, ForgetGate{} * Fixed(rotary(theta,
///     Pairing::interleaved))); apply(layer, weights, X, 1, pass, Y);
///
/// `apply`, `apply_vjp` and `step` are those of the layer that it was made of, in the same bits. Cost: a virtual call
/// beside theirs; copies share the layer. All functions of a layer are compiled where an `AnyLayer` is made of it.
template <class S>
class AnyLayer : public LayerLayout {
 public:
  /// Of a layer, which it keeps.
  template <FeatureMap F, Recipe R, class Normalization>
  AnyLayer(AttentionLayer<F, R, Normalization> layer)
      : LayerLayout(layer),
        layer_(
            std::make_shared<detail::LayerImplementation<S, AttentionLayer<F, R, Normalization>>>(std::move(layer))) {}

  /// See `AttentionLayer`.
  [[nodiscard]] LayerWeights<S> initial(const std::function<double()>& normal, double deviation,
                                        double deviation_out) const {
    return layer_->initial(normal, deviation, deviation_out);
  }

  /// For the functions below.
  [[nodiscard]] const std::shared_ptr<const detail::LayerInterface<S>>& implementation() const { return layer_; }

 private:
  std::shared_ptr<const detail::LayerInterface<S>> layer_;
};

/// `LayerState` of the layer that an `AnyLayer` was made of, and as that a value.
template <class S>
class AnyLayerState {
 public:
  /// Of so many sequences that have no token yet. Throws `ShapeMismatch`.
  explicit AnyLayerState(const AnyLayer<S>& layer, Index sequences = 1)
      : layer_(layer.implementation()), state_(layer_->state(sequences)) {}

  [[nodiscard]] Index tokens() const { return layer_->tokens(state_); }  ///< seen, of each sequence

  template <class T>
  friend void step(const AnyLayer<T>& layer, const LayerWeights<T>& weights,
                   const std::type_identity_t<ConstBatch<T>>& X, AnyLayerState<T>& state, LayerPass<T>& pass,
                   std::type_identity_t<Batch<T>> Y);
  template <class T>
  friend void save(const AnyLayerState<T>& state, std::ostream& out);
  template <class T>
  friend void load(AnyLayerState<T>& state, std::istream& in);

 private:
  std::shared_ptr<const detail::LayerInterface<S>> layer_;
  std::any state_;
};

/// See `apply` of an `AttentionLayer`.
template <class S>
void apply(const AnyLayer<S>& layer, const LayerWeights<S>& weights, const std::type_identity_t<ConstBatch<S>>& X,
           Index sequences, LayerPass<S>& pass, std::type_identity_t<Batch<S>> Y) {
  layer.implementation()->apply(weights, X, sequences, pass, Y);
}
/// See `apply_vjp` of an `AttentionLayer`.
template <class S>
void apply_vjp(const AnyLayer<S>& layer, const LayerWeights<S>& weights, const std::type_identity_t<ConstBatch<S>>& X,
               Index sequences, const LayerPass<S>& pass, const std::type_identity_t<ConstBatch<S>>& dY,
               LayerWeights<S>& gradients, std::type_identity_t<Batch<S>> dX, LayerVjpWorkspace<S>& work) {
  layer.implementation()->apply_vjp(weights, X, sequences, pass, dY, gradients, dX, work);
}
/// Throws `InvalidArgument` for the state of another kind of layer, too.
template <class S>
void step(const AnyLayer<S>& layer, const LayerWeights<S>& weights, const std::type_identity_t<ConstBatch<S>>& X,
          AnyLayerState<S>& state, LayerPass<S>& pass, std::type_identity_t<Batch<S>> Y) {
  layer.implementation()->step(weights, X, state.state_, pass, Y);
}
/// See `save` of a `LayerState`: the same bytes.
template <class S>
void save(const AnyLayerState<S>& state, std::ostream& out) {
  state.layer_->save(state.state_, out);
}
/// See `load` of a `LayerState`.
template <class S>
void load(AnyLayerState<S>& state, std::istream& in) {
  state.layer_->load(state.state_, in);
}

}  // namespace SYMPOW_NAMESPACE
