// What the model computes, for its twin in PyTorch to be compared with.
//
//     parity_numbers FOLDER OPTIONS of the program's training
//
// reads texts of `context` + 1 bytes from FOLDER/texts, a batch a step; and for n = 0, 1, … FOLDER/n.safetensors, the
// weights of draw n. Writes for each of them and the texts of step n, in both types of numbers, logits, losses and
// gradients of all weights, n.double.logits.npy …; the weights after all steps from draw 0 on, after.npy; and
// again.safetensors, the weights of draw 0 as they were read.
#include <fstream>
#include <iostream>

#include <sympow/io/npy.hpp>

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
    std::ofstream out(folder + "/" + name + ".npy", std::ios::binary);
    sympow::io::write_npy(out, {std::ssize(numbers)}, numbers);
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
    const Model<float> of_file(settings.model);
    Weights<float> read = of_file.zeros();
    const auto all = [&](const auto& f) { of_file.for_each(read, f); };
    const Snapshot snapshot(all);
    (void)sympow::io::read_safetensors(weights_file(draw), snapshot.tensors);
    if (draw == 0) sympow::io::write_safetensors(folder + "/again.safetensors", snapshot.tensors);
    Weights<S> w = model.zeros();
    std::size_t n = 0;
    model.for_each(w, [&](const std::string&, Batch<S> x) { x = snapshot.numbers[n++].template cast<S>(); });
    return w;
  }

  template <class S>
  void passes(Index draw, const std::string& type) const {
    const Model<S> model(settings.model);
    const Weights<S> w = weights(model, draw);
    Weights<S> gradients = model.zeros();
    Pass<S> pass;
    Vector<double> of_text;
    std::vector<double> logits, losses, of_weights;
    const auto batch = texts_of(draw);
    for (const auto& text : batch) {
      (void)model.train(w, text, 1 / static_cast<double>(batch.size()), gradients, pass, of_text);
      append<double>(losses, of_text);
      auto memory = model.memory();
      Matrix<S> read = model.read(w, text.first(text.size() - 1), memory, pass);
      append<S>(logits, read);
    }
    model.for_each(gradients, [&](const std::string&, Batch<S> x) { append<S>(of_weights, x); });
    const std::string name = std::to_string(draw) + "." + type + ".";
    write(name + "logits", logits), write(name + "losses", losses), write(name + "gradients", of_weights);
  }

  void training() const {
    const Model<double> model(settings.model);
    Training<double> training(model, settings.descent, 1);
    Weights<double> first = weights(model, 0);
    std::vector<Eigen::MatrixXd> numbers;
    model.for_each(first, [&](const std::string&, Batch<double> x) { numbers.emplace_back(x); });
    std::size_t n = 0;
    training.for_each([&](const std::string&, Batch<double> x) {
      if (n < numbers.size()) x = numbers[n++];
    });
    std::vector<double> after;
    for (Index step = 0; step < settings.descent.steps; ++step) training.step(texts_of(step), 1);
    n = 0;
    training.for_each([&](const std::string&, Batch<double> x) {
      if (n++ < numbers.size()) append<double>(after, x);
    });
    write("after", after);
  }
};

}  // namespace

int main(int argc, char** argv) try {
  if (argc < 2) sympow::detail::raise<sympow::InvalidArgument>("FOLDER is missing");
  Parity parity{{}, argv[1], {}};
  auto options = options_of({argv + 2, argv + argc});
  Settings::for_each(parity.settings,
                     [&](const std::string& name, auto& field, const char*, bool) { take(options, name, field); });
  refuse_others(options);
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
