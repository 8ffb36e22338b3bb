// The eight settings, which take a minute to compile: once for a type of numbers, in a file of its own.
#pragma once

#include "attention.hpp"

#include <sympow/layer/gates.hpp>
#include <sympow/layer/layer_state.hpp>
#include <sympow/layer/turns.hpp>

#include <sympow/feature/exponential.hpp>
#include <sympow/feature/linear.hpp>
#include <sympow/feature/symmetric_power.hpp>
#include <sympow/rotation/frequencies.hpp>

namespace language_model {

template <class S, class Layer>
class AttentionOf final : public Attention<S> {
 public:
  using typename Attention<S>::Memory;

  explicit AttentionOf(Layer layer) : layer_(std::move(layer)) {}

  sympow::LayerWeights<S> zeros() const override { return layer_.template zeros<S>(); }
  sympow::LayerWeights<S> initial(sympow::Random& random, double deviation, double deviation_out) const override {
    return layer_.template initial<S>([&] { return random.normal(); }, deviation, deviation_out);
  }
  void for_each(sympow::LayerWeights<S>& w, const std::function<void(const std::string&, Batch<S>)>& f) const override {
    layer_.for_each(w, f);
  }
  void forward(const sympow::LayerWeights<S>& w, const Matrix<S>& X, sympow::LayerPass<S>& pass,
               Matrix<S>& Y) const override {
    apply(layer_, w, X, 1, pass, Y);
  }
  void backward(const sympow::LayerWeights<S>& w, const Matrix<S>& X, const sympow::LayerPass<S>& pass,
                const Matrix<S>& dY, sympow::LayerWeights<S>& gradients, Matrix<S>& dX,
                sympow::LayerVjpWorkspace<S>& work) const override {
    apply_vjp(layer_, w, X, 1, pass, dY, gradients, dX, work);
  }
  Memory memory() const override { return std::make_shared<State>(layer_); }
  void step(const sympow::LayerWeights<S>& w, const Matrix<S>& X, Memory& memory, sympow::LayerPass<S>& pass,
            Matrix<S>& Y) const override {
    sympow::step(layer_, w, X, *static_cast<State*>(memory.get()), pass, Y);
  }

 private:
  using State = sympow::LayerState<S, Layer>;
  Layer layer_;
};

template <class S>
std::unique_ptr<Attention<S>> make_attention(const Config& config) {
  using namespace sympow;
  const LayerShape shape{config.d_model, config.heads, config.key_heads, config.d, config.d};
  const Eigen::VectorXd theta = rotary_frequencies<double>(config.d, config.longest);
  const ForgetGate gate(config.gate_bias);
  const auto make = [&](const auto& feature, const auto& recipe, bool sums) -> std::unique_ptr<Attention<S>> {
    const AttentionLayer layer(shape, feature, recipe,
                               {.normalizes_rows = sums, .attention = {.form = config.form, .threads = 1}});
    return std::make_unique<AttentionOf<S, std::remove_const_t<decltype(layer)>>>(layer);
  };
  const auto of_power = [&](const auto& recipe) {
    if (config.power == 2) return make(SymmetricPower<2>{}, recipe, false);
    if (config.power == 4) return make(SymmetricPower<4>{}, recipe, false);
    sympow::detail::raise<InvalidArgument>("--power is ", config.power, ", must be 2 or 4");
  };
  if (config.setting == "softmax") return make(Exponential{}, Fixed(rotary(theta)), false);
  if (config.setting == "sympow") return of_power(Fixed(rotary(theta)));
  if (config.setting == "gated") return of_power(gate * Fixed(rotary(theta)));
  if (config.setting == "conformal") return of_power(gate * LearnedRotary(theta));
  if (config.setting == "gla") return make(Linear{}, ChannelGate{}, true);
  if (config.setting == "mamba2") return make(Linear{}, SelectiveStep{}, true);
  if (config.setting == "deltanet") return make(Linear{}, gate * DeltaRule{}, true);
  if (config.setting == "path_fox") return make(Exponential{}, gate * Reflections{}, false);
  sympow::detail::raise<InvalidArgument>("--setting is ", config.setting,
                                         ", must be softmax, sympow, gated, conformal, gla, mamba2, deltanet or "
                                         "path_fox");
}

}  // namespace language_model
