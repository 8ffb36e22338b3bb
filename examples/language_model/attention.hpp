// The attention layer of a block, one of eight settings that are chosen at run time.
#pragma once

#include <sympow/core/random.hpp>
#include <sympow/layer/attention_layer_vjp.hpp>

#include <functional>
#include <memory>
#include <string>

namespace language_model {

using sympow::Index, sympow::Matrix, sympow::Batch, sympow::ConstBatch;

/// Sizes and choices of a model.
struct Config {
  std::string setting = "conformal";  ///< see `make_attention`
  Index power = 2;                    ///< of sympow
  Index layers = 4, d_model = 256, heads = 8, key_heads = 0, d = 32;
  bool tied = false;       ///< the head is the embedding
  double longest = 65536;  ///< N of the rotation rates
  double gate_bias = 6.9;  ///< of forget gates, at the start
  sympow::Form form = sympow::Form::automatic;
};

/// An attention layer without its types, for tokens of one sequence. What it remembers is behind a pointer.
template <class S>
class Attention {
 public:
  using Memory = std::shared_ptr<void>;

  virtual ~Attention() = default;
  virtual sympow::LayerWeights<S> zeros() const = 0;
  virtual sympow::LayerWeights<S> initial(sympow::Random& random, double deviation, double deviation_out) const = 0;
  /// f(name, matrix) of weights or gradients.
  virtual void for_each(sympow::LayerWeights<S>& w,
                        const std::function<void(const std::string&, Batch<S>)>& f) const = 0;
  virtual void forward(const sympow::LayerWeights<S>& w, const Matrix<S>& X, sympow::LayerPass<S>& pass,
                       Matrix<S>& Y) const = 0;
  virtual void backward(const sympow::LayerWeights<S>& w, const Matrix<S>& X, const sympow::LayerPass<S>& pass,
                        const Matrix<S>& dY, sympow::LayerWeights<S>& gradients, Matrix<S>& dX,
                        sympow::LayerVjpWorkspace<S>& work) const = 0;
  virtual Memory memory() const = 0;
  virtual void step(const sympow::LayerWeights<S>& w, const Matrix<S>& X, Memory& memory, sympow::LayerPass<S>& pass,
                    Matrix<S>& Y) const = 0;
};

/// The layer of a setting:
///
///     softmax     exp, rotary positions              gla         linear, a gate a channel
///     sympow      a power, rotary positions          mamba2      linear, selective steps
///     gated       and a forget gate                  deltanet    linear, the delta rule and a forget gate
///     conformal   and learned rotary in its place    path_fox    exp, reflections and a forget gate
///
/// Throws `InvalidArgument` for another one, and for another power than 2 and 4.
template <class S>
std::unique_ptr<Attention<S>> make_attention(const Config& config);

}  // namespace language_model
