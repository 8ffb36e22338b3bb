// The attention layer of a block, one of eight settings that are chosen at run time.
#pragma once

#include <sympow/layer/any_layer.hpp>
#include <sympow/layer/gates.hpp>
#include <sympow/layer/turns.hpp>

#include <sympow/feature/exponential.hpp>
#include <sympow/feature/linear.hpp>
#include <sympow/feature/symmetric_power.hpp>
#include <sympow/rotation/frequencies.hpp>

#include <string>

namespace language_model {

using sympow::Index, sympow::Matrix, sympow::Vector, sympow::Batch;

/// Sizes and choices of a model.
struct Config {
  std::string setting = "conformal";  ///< see `attention_layer`
  Index power = 2;                    ///< of sympow
  Index layers = 4, d_model = 256, heads = 8, key_heads = 0, d = 32;
  bool tied = false;       ///< the head is the embedding
  double longest = 65536;  ///< N of the rotation rates
  double gate_bias = 6.9;  ///< of forget gates, at the start
};

/// The layer of a setting:
///
///     softmax     exp, rotary positions              gla         linear, a gate a channel
///     sympow      a power, rotary positions          mamba2      linear, selective steps
///     gated       and a forget gate                  deltanet    linear, the delta rule and a forget gate
///     conformal   and learned rotary in its place    path_fox    exp, reflections and a forget gate
///
/// Threads run over texts, and not over heads. Throws `InvalidArgument` for another setting, and for another power than
/// 2 and 4.
template <class S>
sympow::AnyLayer<S> attention_layer(const Config& config, sympow::Form form) {
  using namespace sympow;
  const LayerShape shape{config.d_model, config.heads, config.key_heads, config.d, config.d};
  const LayerOptions means{.attention = {.form = form, .threads = 1}},
      sums{.normalizes_rows = true, .attention = means.attention};
  const Eigen::VectorXd theta = rotary_frequencies<double>(config.d, config.longest);
  const ForgetGate gate(config.gate_bias);
  const auto of_power = [&](const auto& recipe) -> AnyLayer<S> {
    if (config.power == 2) return AttentionLayer(shape, SymmetricPower<2>{}, recipe, means);
    if (config.power == 4) return AttentionLayer(shape, SymmetricPower<4>{}, recipe, means);
    sympow::detail::raise<InvalidArgument>("--power is ", config.power, ", must be 2 or 4");
  };
  if (config.setting == "softmax")
    return AttentionLayer(shape, Exponential{}, Fixed(rotary(theta, Pairing::interleaved)), means);
  if (config.setting == "sympow") return of_power(Fixed(rotary(theta, Pairing::interleaved)));
  if (config.setting == "gated") return of_power(gate * Fixed(rotary(theta, Pairing::interleaved)));
  if (config.setting == "conformal") return of_power(gate * LearnedRotary(theta, Pairing::interleaved));
  if (config.setting == "gla") return AttentionLayer(shape, Linear{}, ChannelGate{}, sums);
  if (config.setting == "mamba2") return AttentionLayer(shape, Linear{}, SelectiveStep{}, sums);
  if (config.setting == "deltanet") return AttentionLayer(shape, Linear{}, gate * DeltaRule{}, sums);
  if (config.setting == "path_fox") return AttentionLayer(shape, Exponential{}, gate * Reflections{}, means);
  sympow::detail::raise<InvalidArgument>("--setting is ", config.setting,
                                         ", must be softmax, sympow, gated, conformal, gla, mamba2, deltanet or "
                                         "path_fox");
}

// Compiled once for a type of numbers, in a file of its own: that takes a minute.
extern template sympow::AnyLayer<float> attention_layer(const Config&, sympow::Form);
extern template sympow::AnyLayer<double> attention_layer(const Config&, sympow::Form);

}  // namespace language_model
