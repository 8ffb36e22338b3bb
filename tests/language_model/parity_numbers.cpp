// What the model computes, for its twin in PyTorch to be compared with.
//
//     parity_numbers FOLDER OPTIONS of the program's training
//
// reads texts of `context` + 1 bytes from FOLDER/texts, a batch a step; and for n = 0, 1, … FOLDER/n.safetensors, the
// weights of draw n. Writes for each of them and the texts of step n, in both types of numbers, logits, losses and
// gradients of all weights, n.double.logits.f8 …; the weights after all steps from draw 0 on, after.f8; and
// again.safetensors, the weights of draw 0 as they were read.
#include <fstream>
#include <iostream>

#include "runs.hpp"

namespace {

using namespace language_model;

struct Parity {
  Settings settings;
  std::string folder, texts;

  [[nodiscard]] std::vector<std::span<const std::uint8_t>> texts_of(Index step) const {
    const auto length = static_cast<std::size_t>(settings.context + 1);
    const auto batch = static_cast<std::size_t>(settings.batch);
    std::vector<std::span<const std::uint8_t>> list;
    for (std::size_t n = 0; n < batch; ++n)
      list.push_back(bytes_of(texts).subspan((static_cast<std::size_t>(step) * batch + n) * length, length));
    return list;
  }

  void write(const std::string& name, const std::vector<double>& numbers) const {
    std::ofstream out(folder + "/" + name + ".f8", std::ios::binary);
    out.write(reinterpret_cast<const char*>(numbers.data()), static_cast<std::streamsize>(8 * numbers.size()));
    if (!out) sympow::detail::raise<sympow::InvalidArgument>(folder, ": ", name, " cannot be written");
  }
  template <class S>
  static void append(std::vector<double>& numbers, const Batch<S>& x) {
    for (const S entry : x.reshaped()) numbers.push_back(static_cast<double>(entry));
  }

  [[nodiscard]] std::string weights_file(Index draw) const {
    return folder + "/" + std::to_string(draw) + ".safetensors";
  }
  // The weights of a draw, in the model's type of numbers.
  template <class S>
  Weights<S> weights(const Model<S>& model, Index draw) const {
    Run run(settings);
    std::vector<sympow::io::Tensor> tensors = run.tensors();
    std::erase_if(tensors, [](const sympow::io::Tensor& x) { return x.name.starts_with("adam"); });
    (void)sympow::io::read_safetensors(weights_file(draw), tensors);
    if (draw == 0) sympow::io::write_safetensors(folder + "/again.safetensors", tensors);
    Weights<float> read = run.training.weights();
    Weights<S> w = model.initial(1);
    set(w.all(), read.all());
    return w;
  }
  // The first of the numbers.
  template <class S, class Read>
  static void set(std::vector<Named<S>> numbers, const std::vector<Named<Read>>& to) {
    for (std::size_t n = 0; n < to.size(); ++n) numbers[n].numbers = to[n].numbers.template cast<S>();
  }

  template <class S>
  void passes(Index draw, const std::string& type) const {
    const Model<S> model(settings.model);
    const Weights<S> w = weights(model, draw);
    Weights<S> gradients = weights(model, draw).zeros();
    Pass<S> pass;
    std::vector<double> logits, losses, of_weights;
    const auto batch = texts_of(draw);
    for (const auto& text : batch) {
      (void)model.train(w, text, 1 / static_cast<double>(batch.size()), gradients, pass);
      append<double>(losses, pass.losses);
      auto memory = model.memory();
      Matrix<S> read = model.read(w, text.first(text.size() - 1), memory, pass);
      append<S>(logits, read);
    }
    for (const auto& [weight, x] : gradients.all()) append<S>(of_weights, x);
    const std::string name = std::to_string(draw) + "." + type + ".";
    write(name + "logits", logits), write(name + "losses", losses), write(name + "gradients", of_weights);
  }

  void training() const {
    const Model<double> model(settings.model);
    Training<double> training(model, settings.descent, 1);
    Weights<double> first = weights(model, 0);
    set(training.all(), first.all());
    for (Index step = 0; step < settings.descent.steps; ++step) training.step(texts_of(step), 1);
    std::vector<double> after;
    for (const auto& [name, x] : training.all())
      if (!name.starts_with("adam")) append<double>(after, x);
    write("after", after);
  }
};

}  // namespace

int main(int argc, char** argv) try {
  if (argc < 2) sympow::detail::raise<sympow::InvalidArgument>("FOLDER is missing");
  Parity parity{{}, argv[1], {}};
  Options options(std::vector<std::string>(argv + 2, argv + argc));
  parity.settings = options.take_settings();
  options.end();
  parity.texts = text_tokens::read(parity.folder + "/texts");
  for (Index draw = 0; std::filesystem::exists(parity.weights_file(draw)); ++draw) {
    parity.passes<double>(draw, "double");
    parity.passes<float>(draw, "float");
  }
  parity.training();
} catch (const std::exception& error) {
  std::cerr << "parity_numbers: " << error.what() << '\n';
  return 2;
}
