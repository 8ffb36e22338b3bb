// A GPT-style model of bytes on an attention layer.
#pragma once

#include "attention.hpp"
#include "parts.hpp"

#include <functional>
#include <vector>

namespace language_model {

inline constexpr Index bytes = 256;

/// The weights of a block, or gradients of them.
template <class S>
struct Block {
  Norm<S> before_attention, before_mlp;
  sympow::LayerWeights<S> attention;
  Matrix<S> up, down;  ///< 4 d_model × d_model and its transpose
  Vector<S> up_bias, down_bias;
};

/// The weights of a model, or gradients of them.
template <class S>
struct Weights {
  Matrix<S> embedding;  ///< d_model × 256
  Matrix<S> head;       ///< the same, or nothing where it is the embedding
  Norm<S> after_embedding, last;
  std::vector<Block<S>> blocks;
};

/// What a pass over a sequence leaves, and scratch.
template <class S>
struct Pass {
  struct OfBlock {
    NormPass<S> before_attention, before_mlp;
    sympow::LayerPass<S> attention;
    Matrix<S> attention_input, mlp_input, up, hidden;
  };
  std::vector<OfBlock> blocks;
  NormPass<S> after_embedding, last;
  Matrix<S> stream, added, features, logits, embedded;
  Matrix<S> d_stream, d_added, d_hidden;
  sympow::LayerVjpWorkspace<S> work;
};

/// x ← E[byte], normalised; x ← x + attention(norm(x)), x ← x + W_down gelu(W_up norm(x)) in every block; logits are
/// headᵀ norm(x).
template <class S>
class Model {
 public:
  explicit Model(const Config& config) : config_(config), attention_(make_attention<S>(config)) {
    if (config.layers < 1)
      sympow::detail::raise<sympow::InvalidArgument>("--layers is ", config.layers, ", must be at least 1");
  }

  [[nodiscard]] const Config& config() const { return config_; }

  /// Weights that are all 0.
  [[nodiscard]] Weights<S> zeros() const {
    const Index d = config_.d_model;
    const Norm<S> norm{Vector<S>::Zero(d), Vector<S>::Zero(d)};
    const Block<S> block{norm,
                         norm,
                         attention_->zeros(),
                         Matrix<S>::Zero(4 * d, d),
                         Matrix<S>::Zero(d, 4 * d),
                         Vector<S>::Zero(4 * d),
                         Vector<S>::Zero(d)};
    return {Matrix<S>::Zero(d, bytes), Matrix<S>::Zero(d, config_.tied ? 0 : bytes), norm, norm,
            std::vector<Block<S>>(static_cast<std::size_t>(config_.layers), block)};
  }

  /// Weights to begin with: normal of deviation .02, divided by √(2 layers) in what is added to the stream.
  [[nodiscard]] Weights<S> initial(std::uint64_t seed) const {
    Weights<S> w = zeros();
    sympow::Random random(seed);
    const double of_residuals = .02 / std::sqrt(2. * static_cast<double>(config_.layers));
    const auto fill = [&](Matrix<S>& x, double deviation) {
      for (S& entry : x.reshaped()) entry = static_cast<S>(deviation * random.normal());
    };
    fill(w.embedding, .02);
    fill(w.head, .02);
    for (Norm<S>* norm : {&w.after_embedding, &w.last}) norm->gain.setOnes();
    for (Block<S>& block : w.blocks) {
      block.before_attention.gain.setOnes();
      block.before_mlp.gain.setOnes();
      block.attention = attention_->initial(random, .02, of_residuals);
      fill(block.up, .02);
      fill(block.down, of_residuals);
    }
    return w;
  }

  /// f(name, matrix) for all weights, in an order that is always the same.
  void for_each(Weights<S>& w, const std::function<void(const std::string&, Batch<S>)>& f) const {
    const auto norm = [&](const std::string& name, Norm<S>& x) {
      f(name + ".gain", x.gain);
      f(name + ".bias", x.bias);
    };
    f("embedding", w.embedding);
    norm("after_embedding", w.after_embedding);
    for (std::size_t n = 0; n < w.blocks.size(); ++n) {
      const std::string name = "blocks." + std::to_string(n) + ".";
      Block<S>& block = w.blocks[n];
      norm(name + "before_attention", block.before_attention);
      attention_->for_each(block.attention,
                           [&](const std::string& what, Batch<S> x) { f(name + "attention." + what, x); });
      norm(name + "before_mlp", block.before_mlp);
      f(name + "up", block.up);
      f(name + "up_bias", block.up_bias);
      f(name + "down", block.down);
      f(name + "down_bias", block.down_bias);
    }
    norm("last", w.last);
    if (!config_.tied) f("head", w.head);
  }

  /// The mean loss of text[1…] after text[0…], whose gradient times `weight` is added to `gradients`; the losses of all
  /// positions stay in `losses`.
  double train(const Weights<S>& w, std::span<const std::uint8_t> text, double weight, Weights<S>& gradients,
               Pass<S>& pass, Vector<double>& losses) const {
    const auto read = text.first(text.size() - 1);
    run(w, read, pass, whole(w, pass));
    const double each = weight / static_cast<double>(read.size());
    cross_entropy(pass.logits, text.subspan(1), static_cast<S>(each), losses);
    take_back(w, read, gradients, pass);
    return losses.mean();
  }

  /// The losses alone.
  double evaluate(const Weights<S>& w, std::span<const std::uint8_t> text, Pass<S>& pass,
                  Vector<double>& losses) const {
    run(w, text.first(text.size() - 1), pass, whole(w, pass));
    cross_entropy(pass.logits, text.subspan(1), S(0), losses);
    return losses.mean();
  }

  /// What is remembered of a text, in every block.
  using Memory = std::vector<typename Attention<S>::Memory>;
  [[nodiscard]] Memory memory() const {
    Memory memory;
    for (Index n = 0; n < config_.layers; ++n) memory.push_back(attention_->memory());
    return memory;
  }

  /// The logits of all next bytes, 256 × as many as are read after those that the memory knows.
  const Matrix<S>& read(const Weights<S>& w, std::span<const std::uint8_t> text, Memory& memory, Pass<S>& pass) const {
    run(w, text, pass, [&](std::size_t n, const Matrix<S>& X, Matrix<S>& Y) {
      attention_->step(w.blocks[n].attention, X, memory[n], pass.blocks[n].attention, Y);
    });
    return pass.logits;
  }

 private:
  auto whole(const Weights<S>& w, Pass<S>& pass) const {
    return [&](std::size_t n, const Matrix<S>& X, Matrix<S>& Y) {
      attention_->forward(w.blocks[n].attention, X, pass.blocks[n].attention, Y);
    };
  }
  const Matrix<S>& head(const Weights<S>& w) const { return config_.tied ? w.embedding : w.head; }

  // attend(n, X, Y) is the attention of block n.
  template <class Attend>
  void run(const Weights<S>& w, std::span<const std::uint8_t> text, Pass<S>& pass, const Attend& attend) const {
    const auto T = static_cast<Index>(text.size());
    pass.blocks.resize(w.blocks.size());
    pass.embedded.resize(config_.d_model, T);
    for (Index t = 0; t < T; ++t) pass.embedded.col(t) = w.embedding.col(text[static_cast<std::size_t>(t)]);
    normalize(w.after_embedding, pass.embedded, pass.after_embedding, pass.stream);
    pass.added.resize(config_.d_model, T);
    for (std::size_t n = 0; n < w.blocks.size(); ++n) {
      const Block<S>& block = w.blocks[n];
      auto& x = pass.blocks[n];
      normalize(block.before_attention, pass.stream, x.before_attention, x.attention_input);
      attend(n, x.attention_input, pass.added);
      pass.stream += pass.added;
      normalize(block.before_mlp, pass.stream, x.before_mlp, x.mlp_input);
      x.up.noalias() = block.up * x.mlp_input;
      x.up.colwise() += block.up_bias;
      gelu(x.up, x.hidden);
      pass.stream.noalias() += block.down * x.hidden;
      pass.stream.colwise() += block.down_bias;
    }
    normalize(w.last, pass.stream, pass.last, pass.features);
    pass.logits.noalias() = head(w).transpose() * pass.features;
  }

  // From the gradient of the logits, which stands in their place.
  void take_back(const Weights<S>& w, std::span<const std::uint8_t> text, Weights<S>& g, Pass<S>& pass) const {
    (config_.tied ? g.embedding : g.head).noalias() += pass.features * pass.logits.transpose();
    pass.d_added.noalias() = head(w) * pass.logits;
    pass.d_stream.setZero(pass.stream.rows(), pass.stream.cols());
    normalize_vjp(w.last, pass.last, pass.d_added, g.last, pass.d_stream);
    for (std::size_t n = w.blocks.size(); n-- > 0;) {
      const Block<S>& block = w.blocks[n];
      Block<S>& to = g.blocks[n];
      auto& x = pass.blocks[n];
      to.down.noalias() += pass.d_stream * x.hidden.transpose();
      to.down_bias += pass.d_stream.rowwise().sum();
      pass.d_hidden.noalias() = block.down.transpose() * pass.d_stream;
      gelu_vjp(x.up, pass.d_hidden);
      to.up.noalias() += pass.d_hidden * x.mlp_input.transpose();
      to.up_bias += pass.d_hidden.rowwise().sum();
      pass.d_added.noalias() = block.up.transpose() * pass.d_hidden;
      normalize_vjp(block.before_mlp, x.before_mlp, pass.d_added, to.before_mlp, pass.d_stream);
      attention_->backward(block.attention, x.attention_input, x.attention, pass.d_stream, to.attention, pass.d_added,
                           pass.work);
      normalize_vjp(block.before_attention, x.before_attention, pass.d_added, to.before_attention, pass.d_stream);
    }
    pass.d_added.setZero(pass.stream.rows(), pass.stream.cols());
    normalize_vjp(w.after_embedding, pass.after_embedding, pass.d_stream, g.after_embedding, pass.d_added);
    for (Index t = 0; t < pass.d_added.cols(); ++t)
      g.embedding.col(text[static_cast<std::size_t>(t)]) += pass.d_added.col(t);
  }

  Config config_;
  std::unique_ptr<Attention<S>> attention_;
};

}  // namespace language_model
