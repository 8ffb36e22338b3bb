// What the program does with a model: train, evaluate, generate.
#pragma once

#include "checkpoints.hpp"
#include "corpus.hpp"
#include "settings.hpp"

#include <chrono>
#include <iomanip>
#include <iostream>

namespace language_model {

/// Seconds since it was made.
class Clock {
 public:
  [[nodiscard]] double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
  }

 private:
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

inline std::span<const std::uint8_t> bytes_of(std::string_view text) {
  return {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()};
}

/// All that a run has made as tensors with memory of their own; `adopt` takes it back.
struct Snapshot {
  std::vector<Matrix<float>> numbers;
  std::vector<Tensor> tensors;

  /// Of what visit(f) calls f(name, matrix) with.
  template <class Visit>
  explicit Snapshot(const Visit& visit) {
    std::vector<std::string> names;
    visit([&](const std::string& name, Batch<float> x) {
      names.push_back(name);
      numbers.emplace_back(x);
    });
    for (std::size_t n = 0; n < names.size(); ++n) {
      Matrix<float>& x = numbers[n];
      tensors.push_back({names[n], {x.cols(), x.rows()}, {x.data(), static_cast<std::size_t>(x.size())}});
    }
  }
  template <class Visit>
  void adopt(const Visit& visit) const {
    std::size_t n = 0;
    visit([&](const std::string&, Batch<float> x) { x = numbers[n++]; });
  }
};

inline Metadata metadata_of(const Settings& settings) {
  Metadata metadata;
  Settings::for_each(settings, [&](const std::string& name, const auto& field, const char*, bool) {
    metadata[name.substr(2)] = words_of(field);
  });
  return metadata;
}

/// Multiply-adds a second of a product of matrices such as the model's, on so many threads at once.
inline double product_rate(const Settings& settings, int threads) {
  struct Product {
    Matrix<float> A, B, C;
  };
  std::vector<Product> products;
  const Index d = settings.model.d_model;
  std::vector<double> rates(static_cast<std::size_t>(threads));
  sympow::detail::parallel_for(threads, threads, products, [&](Index n, Product& x) {
    x.A.setOnes(4 * d, d), x.B.setOnes(d, settings.context), x.C.resize(4 * d, settings.context);
    const Clock clock;
    int times = 0;
    for (; clock.seconds() < .2; ++times) x.C.noalias() = x.A * x.B;
    rates[static_cast<std::size_t>(n)] =
        times * static_cast<double>(x.C.size()) * static_cast<double>(d) / clock.seconds();
  });
  double rate = 0;
  for (const double of_thread : rates) rate += of_thread;
  return rate;
}

/// Trains until `steps`, from the newest whole checkpoint of the folder on. A run that was killed and goes on makes the
/// same weights, bit for bit, as one that was not. Throws `InvalidArgument`.
inline void train(const Settings& settings, std::ostream& says) {
  const Corpus corpus(settings.data);
  (void)corpus.training.window(settings.seed, 0, 0, settings.context + 1);  // throws before anything is made
  const Model<float> model(settings.model);
  Training<float> training(model, settings.descent, settings.seed);
  const auto all = [&](const auto& f) { training.for_each(f); };
  if (const auto found = newest(settings.out)) {
    Settings::for_each(settings, [&](const std::string& name, const auto& field, const char*, bool of_run) {
      const auto at = found->metadata.find(name.substr(2));
      const std::string was = at == found->metadata.end() ? "nothing" : at->second;
      if (of_run && was != words_of(field))
        sympow::detail::raise<sympow::InvalidArgument>(name, " is ", words_of(field), ", but ", was, " in ",
                                                       found->path, "; take another --out");
    });
    const Snapshot snapshot(all);
    (void)sympow::io::read_safetensors(found->path, snapshot.tensors);
    snapshot.adopt(all);
    training.set_steps(found->step);
    says << "going on from " << found->path << '\n';
  }
  const Checkpoints checkpoints(settings.out, static_cast<std::size_t>(settings.keep));
  const std::string csv = settings.out + "/loss.csv";
  const bool is_new = !std::filesystem::exists(csv);
  std::ofstream table(csv, std::ios::app);
  if (is_new) table << "step,bytes,loss,gradient_length,rate,seconds\n";

  Index weights = 0, products = 0;
  all([&](const std::string& name, Batch<float> x) {
    if (name.starts_with("adam")) return;
    weights += x.size();
    if (x.rows() > 1 && x.cols() > 1 && name != "embedding") products += x.size();
  });
  if (settings.model.tied) products += settings.model.d_model * bytes;
  const int threads = sympow::detail::threads_of(settings.threads);
  const double of_step = static_cast<double>(settings.batch * settings.context);
  const double most = product_rate(settings, threads) / (3 * static_cast<double>(products));  // bytes a second
  says << settings.model.setting << ", " << weights << " weights, " << corpus.training.bytes.size() << " bytes in "
       << corpus.training.size() << " documents, " << corpus.held_out.size() << " held out\n";

  const Clock clock;
  const Index first = training.steps();
  double last_said = -10;
  while (training.steps() < settings.descent.steps) {
    const Index step = training.steps();
    std::vector<std::span<const std::uint8_t>> texts;
    for (Index n = 0; n < settings.batch; ++n) {
      const Index length = settings.context + 1;
      const Index begin = corpus.training.window(settings.seed, step, n, length);
      texts.push_back(
          bytes_of(corpus.training.bytes).subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(length)));
    }
    const auto report = training.step(texts, threads);
    const double seconds = clock.seconds();
    table << training.steps() << ',' << static_cast<Index>(of_step) * training.steps() << ',' << std::setprecision(7)
          << report.loss << ',' << report.gradient_length << ',' << report.rate << ',' << seconds << '\n'
          << std::flush;
    const bool is_last = training.steps() == settings.descent.steps;
    if (seconds - last_said > 5 || is_last) {
      const double rate = of_step * static_cast<double>(training.steps() - first) / seconds;
      says << "step " << training.steps() << " of " << settings.descent.steps << "  loss " << std::setprecision(4)
           << report.loss << "  " << rate << " bytes/s  " << std::setprecision(2) << rate / most
           << " of the product rate  " << std::setprecision(3)
           << of_step * static_cast<double>(settings.descent.steps - training.steps()) / rate << " s left" << std::endl;
      last_said = seconds;
    }
    if (training.steps() % settings.checkpoint_every == 0 || is_last)
      checkpoints.save(training.steps(), Snapshot(all).tensors, metadata_of(settings));
  }
}

/// A trained model from the newest checkpoint of a folder.
struct Trained {
  Settings settings;
  Index steps = 0;
  std::unique_ptr<Model<float>> model;
  Weights<float> weights;

  /// Throws `InvalidArgument` if there is none.
  explicit Trained(const std::string& folder) {
    const auto found = newest(folder);
    if (!found)
      sympow::detail::raise<sympow::InvalidArgument>("--out ", folder, ": there is no checkpoint; train first");
    steps = found->step;
    Settings::for_each(settings, [&](const std::string& name, auto& field, const char*, bool) {
      if (const auto at = found->metadata.find(name.substr(2)); at != found->metadata.end())
        read_field(name, at->second, field);
    });
    model = std::make_unique<Model<float>>(settings.model);
    Training<float> training(*model, settings.descent, settings.seed);
    const auto all = [&](const auto& f) { training.for_each(f); };
    const Snapshot snapshot(all);
    (void)sympow::io::read_safetensors(found->path, snapshot.tensors);
    snapshot.adopt(all);
    weights = training.weights();
  }
};

/// The mean loss at every position of so many held-out texts of `length` bytes.
inline Eigen::VectorXd evaluate(const Trained& trained, const Corpus& corpus, Index length, Index windows,
                                int threads) {
  struct Scratch {
    Pass<float> pass;
    Vector<double> losses;
  };
  std::vector<Scratch> scratch;
  std::vector<Vector<double>> of_windows(static_cast<std::size_t>(windows));
  sympow::detail::parallel_for(windows, threads, scratch, [&](Index n, Scratch& x) {
    const Index begin = corpus.held_out.window(0, 0, n, length + 1);
    const auto text =
        bytes_of(corpus.held_out.bytes).subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(length + 1));
    (void)trained.model->evaluate(trained.weights, text, x.pass, x.losses);
    of_windows[static_cast<std::size_t>(n)] = x.losses;
  });
  Eigen::VectorXd mean = Eigen::VectorXd::Zero(length);
  for (const auto& losses : of_windows) mean += losses / static_cast<double>(windows);
  return mean;
}

/// `prompt` and so many bytes more, each drawn by its probability to the power 1/temperature; 0 takes the likeliest.
/// What is remembered does not grow, but under softmax.
inline void generate(const Trained& trained, const std::string& prompt, Index count, double temperature,
                     std::uint64_t seed, std::ostream& to) {
  if (prompt.empty()) sympow::detail::raise<sympow::InvalidArgument>("--prompt is empty, must have a byte");
  auto memory = trained.model->memory();
  Pass<float> pass;
  sympow::Random random(seed);
  constexpr std::size_t at_once = 512;
  Eigen::VectorXd logits;
  const auto read = [&](std::string_view text) {
    for (std::size_t n = 0; n < text.size(); n += at_once)
      logits = trained.model->read(trained.weights, bytes_of(text.substr(n, at_once)), memory, pass)
                   .rightCols(1)
                   .template cast<double>();
  };
  to << prompt << std::flush;
  read(prompt);
  for (Index n = 0; n < count; ++n) {
    Index byte = 0;
    const double largest = logits.maxCoeff(&byte);
    if (temperature > 0) {
      const Eigen::VectorXd weights = ((logits.array() - largest) / temperature).exp();
      double left = random.uniform() * weights.sum();
      for (byte = 0; byte + 1 < weights.size() && left >= weights[byte]; ++byte) left -= weights[byte];
    }
    const std::string next(1, static_cast<char>(byte));
    to << next << std::flush;
    read(next);
  }
  to << '\n';
}

}  // namespace language_model
