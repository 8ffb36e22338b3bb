// A GPT-style model of bytes on an attention layer.
#pragma once

#include "attention.hpp"
#include "parts.hpp"

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

/// A matrix and what it is called.
template <class S>
struct Named {
  std::string name;
  Batch<S> numbers;
};

/// The weights of a model, or gradients of them.
template <class S>
struct Weights {
  Matrix<S> embedding;  ///< d_model × 256
  Matrix<S> head;       ///< the same, or nothing where it is the embedding
  Norm<S> after_embedding, last;
  std::vector<Block<S>> blocks;

  /// All of them, in an order that is always the same.
  [[nodiscard]] std::vector<Named<S>> all() {
    std::vector<Named<S>> list;
    const auto add_norm = [&](const std::string& name, Norm<S>& norm) {
      list.push_back({name + ".gain", norm.gain});
      list.push_back({name + ".bias", norm.bias});
    };
    list.push_back({"embedding", embedding});
    add_norm("after_embedding", after_embedding);
    for (std::size_t n = 0; n < blocks.size(); ++n) {
      const std::string name = "blocks." + std::to_string(n) + ".";
      Block<S>& block = blocks[n];
      add_norm(name + "before_attention", block.before_attention);
      list.push_back({name + "attention.W_in", block.attention.in});
      list.push_back({name + "attention.W_out", block.attention.out});
      list.push_back({name + "attention.recipe", block.attention.recipe});
      add_norm(name + "before_mlp", block.before_mlp);
      list.push_back({name + "up", block.up});
      list.push_back({name + "up_bias", block.up_bias});
      list.push_back({name + "down", block.down});
      list.push_back({name + "down_bias", block.down_bias});
    }
    add_norm("last", last);
    if (head.size() > 0) list.push_back({"head", head});
    return list;
  }

  /// As many that are all 0.
  [[nodiscard]] Weights zeros() const {
    Weights w = *this;
    for (auto& [name, numbers] : w.all()) numbers.setZero();
    return w;
  }
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
  Vector<double> losses;  ///< of all positions
};

/// x ← E[byte], normalised; x ← x + attention(norm(x)), x ← x + W_down gelu(W_up norm(x)) in every block; logits are
/// headᵀ norm(x).
template <class S>
class Model {
 public:
  /// `form` is that of attention over whole texts. Throws `InvalidArgument`.
  explicit Model(const Config& config, sympow::Form form = sympow::Form::automatic)
      : config_(config), attention_(attention_layer<S>(config, form)) {}

  /// Weights to begin with: normal of deviation .02, divided by √(2 layers) in what is added to the stream.
  [[nodiscard]] Weights<S> initial(std::uint64_t seed) const {
    sympow::Random random(seed);
    const auto normal = [&](Index rows, Index columns, double deviation) {
      Matrix<S> x(rows, columns);
      for (S& entry : x.reshaped()) entry = static_cast<S>(deviation * random.normal());
      return x;
    };
    const Index d = config_.d_model;
    const double of_residuals = .02 / std::sqrt(2. * static_cast<double>(config_.layers));
    const Norm<S> norm{Vector<S>::Ones(d), Vector<S>::Zero(d)};
    Weights<S> w{normal(d, bytes, .02), normal(d, config_.tied ? 0 : bytes, .02), norm, norm, {}};
    for (Index n = 0; n < config_.layers; ++n)
      w.blocks.push_back({norm, norm, attention_.initial([&] { return random.normal(); }, .02, of_residuals),
                          normal(4 * d, d, .02), normal(d, 4 * d, of_residuals), Vector<S>::Zero(4 * d),
                          Vector<S>::Zero(d)});
    return w;
  }

  /// The mean loss of text[1…] after text[0…]; `weight` times its gradient stands in the place of the logits.
  double evaluate(const Weights<S>& w, std::span<const std::uint8_t> text, Pass<S>& pass, double weight = 0) const {
    const auto read = text.first(text.size() - 1);
    run(w, read, pass, [&](std::size_t n, const Matrix<S>& X, Matrix<S>& Y) {
      apply(attention_, w.blocks[n].attention, X, 1, pass.blocks[n].attention, Y);
    });
    cross_entropy(pass.logits, text.subspan(1), static_cast<S>(weight / static_cast<double>(read.size())), pass.losses);
    return pass.losses.mean();
  }

  /// The same, whose gradient times `weight` is added to `gradients`.
  double train(const Weights<S>& w, std::span<const std::uint8_t> text, double weight, Weights<S>& gradients,
               Pass<S>& pass) const {
    const double loss = evaluate(w, text, pass, weight);
    take_back(w, text.first(text.size() - 1), gradients, pass);
    return loss;
  }

  /// What is remembered of a text, in every block; to begin with, of none.
  using Memory = std::vector<sympow::AnyLayerState<S>>;
  [[nodiscard]] Memory memory() const {
    return Memory(static_cast<std::size_t>(config_.layers), sympow::AnyLayerState<S>(attention_));
  }

  /// The logits of all next bytes, 256 × as many as are read after those that the memory knows.
  const Matrix<S>& read(const Weights<S>& w, std::span<const std::uint8_t> text, Memory& memory, Pass<S>& pass) const {
    run(w, text, pass, [&](std::size_t n, const Matrix<S>& X, Matrix<S>& Y) {
      step(attention_, w.blocks[n].attention, X, memory[n], pass.blocks[n].attention, Y);
    });
    return pass.logits;
  }

 private:
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
      apply_vjp(attention_, block.attention, x.attention_input, 1, x.attention, pass.d_stream, to.attention,
                pass.d_added, pass.work);
      normalize_vjp(block.before_attention, x.before_attention, pass.d_added, to.before_attention, pass.d_stream);
    }
    pass.d_added.setZero(pass.stream.rows(), pass.stream.cols());
    normalize_vjp(w.after_embedding, pass.after_embedding, pass.d_stream, g.after_embedding, pass.d_added);
    for (Index t = 0; t < pass.d_added.cols(); ++t)
      g.embedding.col(text[static_cast<std::size_t>(t)]) += pass.d_added.col(t);
  }

  Config config_;
  sympow::AnyLayer<S> attention_;
};

}  // namespace language_model
