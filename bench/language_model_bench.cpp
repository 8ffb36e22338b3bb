// The transformer of examples/language_model on one thread: steps of its training, and bytes that it makes.
#include "language_model/optimizer.hpp"

#include "bars.hpp"

using namespace sympow;
using namespace sympow::bench;
using namespace language_model;

namespace {

// Steps of training on texts that are always the same.
class Steps {
 public:
  Steps(const Config& config, Index context, Index batch, Form form = Form::automatic)
      : training_(Model<float>(config, form), {}, 1) {
    Random random(1);
    text_.resize(static_cast<std::size_t>(context * batch + 1));
    for (auto& byte : text_) byte = static_cast<std::uint8_t>(random.integer(0, 255));
    for (Index n = 0; n < batch; ++n)
      texts_.push_back(
          std::span(text_).subspan(static_cast<std::size_t>(n * context), static_cast<std::size_t>(context + 1)));
  }
  void operator()() { benchmark::DoNotOptimize(training_.step(texts_, 1).loss); }

  [[nodiscard]] double tokens() const { return static_cast<double>(text_.size() - 1); }
  // Of all matrices but the embedding, which is only read.
  [[nodiscard]] double products() {
    Index numbers = 0;
    for (const auto& [name, x] : training_.all())
      if (!name.starts_with("adam") && name != "embedding" && x.rows() > 1 && x.cols() > 1) numbers += x.size();
    return static_cast<double>(numbers);
  }

 private:
  Training<float> training_;
  std::vector<std::uint8_t> text_;
  std::vector<std::span<const std::uint8_t>> texts_;
};

// Useful operations: 6 a weight and token, and of a head of conformal-sympow 12 D (e + 1) a token.
void training_step(benchmark::State& bench) {
  const Config config{.layers = 3, .d_model = unless_smoke(512, 64), .heads = unless_smoke(16, 2)};
  const Index context = unless_smoke(1024, 64);
  Steps steps(config, context, 2);
  const Times times = in_turns(bench, Product(), steps);
  const double of_weights = 6 * steps.products() * steps.tokens();
  const double D = static_cast<double>(SymmetricPower<2>{}.dimension(config.d));
  const double of_heads = 12 * D * static_cast<double>((config.d + 1) * config.heads * config.layers) * steps.tokens();
  report_operations(bench, "a step of training, conformal-sympow, 9.8 million weights, context 1024", times,
                    of_weights + of_heads, .5,
                    text("%.0f bytes a second; products with weights alone %.2f of the product rate",
                         steps.tokens() / times.own, of_weights / times.own / Product::operations() * times.reference));
}
BENCHMARK(training_step)->Iterations(5)->UseManualTime();

void chunked_training(benchmark::State& bench) {
  const auto steps = [](Form form) {
    return Steps({.layers = 2, .d_model = unless_smoke(256, 64), .heads = unless_smoke(8, 2), .d = 32},
                 unless_smoke(4096, 64), 1, form);
  };
  Steps by_chunks = steps(Form::chunked), by_attention = steps(Form::attention);
  const Times times = in_turns(bench, by_attention, by_chunks);
  report_ratio(bench, "a step of training, P = 2, d = 32, context 4096, chunked", times, "the attention form", 3,
               text("%.0f bytes a second", by_chunks.tokens() / times.own));
}
BENCHMARK(chunked_training)->Iterations(5)->UseManualTime();

// A byte after 100,000 that were read beside one after 1,000.
void generation(benchmark::State& bench) {
  const Model<float> model(Config{.layers = 2, .d_model = 128, .heads = 4});
  const Weights<float> weights = model.initial(1);
  Pass<float> pass;
  const Index at_once = unless_smoke(1000, 100);
  const auto after = [&](Index bytes_before) {
    auto memory = model.memory();
    const std::vector<std::uint8_t> text(static_cast<std::size_t>(at_once), 'a');
    for (Index n = 0; n < bytes_before; n += at_once) model.read(weights, text, memory, pass);
    return [&, memory]() mutable {
      const std::uint8_t byte = 'b';
      benchmark::DoNotOptimize(model.read(weights, std::span(&byte, 1), memory, pass).data());
    };
  };
  auto early = after(at_once), late = after(unless_smoke(100000, 2 * at_once));
  const Times times = in_turns(bench, early, late, 20);
  report_ratio(bench, "a byte made after 100,000", times, "one made after 1,000", .9, text("%.0f µs", 1e6 * times.own));
}
BENCHMARK(generation)->Iterations(40)->UseManualTime();

}  // namespace
