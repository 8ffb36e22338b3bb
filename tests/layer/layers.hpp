// Layers of every recipe with random weights and tokens.
#pragma once

#include <sympow/sympow.hpp>

#include <sympow/layer/gates.hpp>
#include <sympow/layer/layer_state.hpp>
#include <sympow/layer/turns.hpp>

#include "random.hpp"

namespace sympow::test {

inline constexpr Index d_model = 10, tokens = 19, sequences = 2;

/// Weights, tokens and a gradient of the outputs.
template <class Layer, class Scalar = double>
struct RandomLayer {
  Layer layer;
  LayerWeights<Scalar> weights;
  Matrix<Scalar> X, dY;

  explicit RandomLayer(const Layer& of, std::uint64_t seed = 3) : layer(of) {
    Random random(seed);
    weights = layer.template initial<Scalar>([&] { return random.normal(); }, .4, .4);
    for (Scalar& x : weights.recipe.reshaped()) x += static_cast<Scalar>(.3 * random.normal());
    X = random.matrix<Scalar>(d_model, sequences * tokens);
    dY = random.matrix<Scalar>(d_model, sequences * tokens);
  }

  [[nodiscard]] Matrix<Scalar> outputs(LayerPass<Scalar>& pass) const {
    Matrix<Scalar> Y(X.rows(), X.cols());
    apply(layer, weights, X, sequences, pass, Y);
    return Y;
  }
};

/// f(name, layer) for layers of four query heads and two key heads, with every part of a recipe in one of them.
template <class Function>
void with_layers(const Function& f) {
  const LayerShape shape{.d_model = d_model, .heads = 4, .key_heads = 2, .d = 4, .e = 6};
  const LayerOptions sums{.normalizes_rows = true, .attention = {.threads = 1}}, means{.attention = {.threads = 1}};
  const Eigen::VectorXd theta = rotary_frequencies<double>(shape.d, 40);
  const SymmetricPower<2> power;
  f("gated sympow", AttentionLayer(shape, power, ForgetGate(1) * Fixed(rotary(theta, Pairing::interleaved)), means));
  f("conformal-sympow",
    AttentionLayer(shape, power, ForgetGate(1) * LearnedRotary(theta, Pairing::interleaved), means));
  f("RetNet", AttentionLayer(shape, Linear{}, Fixed(std::vector{constant_decay(.9), constant_decay(.7)}), sums));
  f("GLA", AttentionLayer(shape, Linear{}, ChannelGate(2), sums));
  f("Mamba-2", AttentionLayer(shape, Linear{}, SelectiveStep{}, sums));
  f("Gated DeltaNet", AttentionLayer(shape, Linear{}, ForgetGate(1) * DeltaRule{}, sums));
  f("Kimi Delta Attention", AttentionLayer(shape, Linear{}, ChannelGate(2) * DeltaRule{}, sums));
  f("PaTH-FoX", AttentionLayer(shape, Exponential{}, ForgetGate(1) * Reflections{}, means));
}

}  // namespace sympow::test
