// Training and evaluation: runs, and the folders that they are kept in.
#pragma once

#include "corpus.hpp"
#include "settings.hpp"

#include <sympow/io/checkpoints.hpp>

#include <chrono>
#include <cstdio>
#include <iomanip>
#include <iostream>

namespace language_model {

/// A run: its settings, what it has made, and the checkpoint that it was read from, if there is one.
struct Run {
  Settings settings;
  Training<float> training;
  sympow::io::Checkpoint checkpoint;

  /// At its begin. Throws `InvalidArgument` for settings that there is no model of.
  explicit Run(const Settings& of) : settings(of), training(Model<float>(of.model), of.descent, of.seed) {}

  /// All that it has made, where it lies.
  [[nodiscard]] std::vector<sympow::io::Tensor> tensors() {
    std::vector<sympow::io::Tensor> list;
    for (auto& [name, x] : training.all())
      list.push_back({name, {x.cols(), x.rows()}, {x.data(), static_cast<std::size_t>(x.size())}});
    return list;
  }
  void load(const sympow::io::Checkpoint& found) {
    (void)sympow::io::read_safetensors(found.path, tensors());
    training.set_steps(found.step);
    checkpoint = found;
  }
};

/// The run of a folder, at its newest whole checkpoint. Throws `InvalidArgument` if there is none.
inline Run newest_run(const std::string& folder) {
  const auto found = sympow::io::newest_checkpoint(folder, std::cerr);
  if (!found) sympow::detail::raise<sympow::InvalidArgument>("--out ", folder, ": there is no checkpoint; train first");
  Run run(Options(found->metadata).take_settings());
  run.load(*found);
  return run;
}

/// Throws `InvalidArgument` unless a run with these settings would have made the checkpoint.
inline void require_same(const Settings& settings, const sympow::io::Checkpoint& found) {
  auto is = words_of(settings), was = words_of(Options(found.metadata).take_settings());
  Settings::for_each(settings, [&](const std::string& name, const auto&, const char*, bool of_run) {
    if (of_run && is[name] != was[name])
      sympow::detail::raise<sympow::InvalidArgument>("--", name, " is ", is[name], ", but ", was[name], " in ",
                                                     found.path, "; take another --out");
  });
}

/// Trains until `steps`, from the newest whole checkpoint of the folder on. A run that was killed and goes on makes the
/// same weights, bit for bit, as one that was not. Throws `InvalidArgument`.
inline void train(Options options) {
  const Settings settings = options.take_settings();
  options.end();
  if (settings.data.empty()) sympow::detail::raise<sympow::InvalidArgument>("--data is missing: a file or a folder");
  const Corpus corpus(settings.data);
  (void)corpus.training.window(settings.seed, 0, 0, settings.context + 1);  // throws before anything is made

  Run run(settings);
  auto& training = run.training;
  if (const auto found = sympow::io::newest_checkpoint(settings.out, std::cerr)) {
    require_same(settings, *found);
    run.load(*found);
    std::cerr << "going on from " << found->path << '\n';
  }
  const sympow::io::Checkpoints checkpoints(settings.out, static_cast<std::size_t>(settings.keep));
  const std::string csv = settings.out + "/loss.csv";
  const bool is_new = !std::filesystem::exists(csv);
  std::ofstream table(csv, std::ios::app);
  if (is_new) table << "step,bytes,loss,gradient_length,rate,seconds\n";

  Index weights = 0;
  for (const auto& [name, x] : training.all()) weights += name.starts_with("adam") ? 0 : x.size();
  std::cerr << settings.model.setting << ", " << weights << " weights, " << corpus.training.texts.size()
            << " documents to learn from, " << corpus.held_out.texts.size() << " held out\n";

  const int threads = sympow::detail::threads_of(settings.threads);
  const Index bytes_of_step = settings.batch * settings.context, first = training.steps(),
              last = settings.descent.steps;
  const auto begin = std::chrono::steady_clock::now();
  double last_said = -10;
  while (training.steps() < last) {
    std::vector<std::span<const std::uint8_t>> texts;
    for (Index n = 0; n < settings.batch; ++n)
      texts.push_back(corpus.training.window(settings.seed, training.steps(), n, settings.context + 1));
    const auto report = training.step(texts, threads);
    const Index step = training.steps();
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    table << step << ',' << step * bytes_of_step << ',' << std::setprecision(7) << report.loss << ','
          << report.gradient_length << ',' << report.rate << ',' << seconds << '\n'
          << std::flush;
    if (seconds - last_said > 5 || step == last) {
      const double steps_of_second = static_cast<double>(step - first) / seconds;
      std::cerr << "step " << step << " of " << last << "  loss " << std::setprecision(4) << report.loss << "  "
                << steps_of_second * static_cast<double>(bytes_of_step) << " bytes/s  " << std::setprecision(3)
                << static_cast<double>(last - step) / steps_of_second << " s left" << std::endl;
      last_said = seconds;
    }
    if (step % settings.checkpoint_every == 0 || step == last)
      checkpoints.save(step, run.tensors(), words_of(settings));
  }
}

/// The mean loss at every position of held-out texts: prints means of octaves, and writes all of it to a table. Throws
/// `InvalidArgument`.
inline void evaluate(Options options) {
  std::string folder = Settings{}.out, csv;
  options.take("out", folder);
  const Run run = newest_run(folder);
  Settings settings = run.settings;
  Index length = 8 * settings.context, windows = 16;
  options.take("data", settings.data);
  options.take("threads", settings.threads);
  options.take("csv", csv);
  options.take_some("length", length);
  options.take_some("windows", windows);
  options.end();

  const Corpus corpus(settings.data);
  std::vector<Pass<float>> passes;
  Eigen::MatrixXd of_windows(length, windows);
  sympow::detail::parallel_for(windows, sympow::detail::threads_of(settings.threads), passes, [&](Index n, auto& pass) {
    const auto text = corpus.held_out.window(0, 0, n, length + 1);
    (void)run.training.model().evaluate(run.training.weights(), text, pass);
    of_windows.col(n) = pass.losses;
  });
  const Eigen::VectorXd losses = of_windows.rowwise().mean();
  std::printf("%s after %td steps of context %td: mean loss %.4f\npositions      loss\n",
              settings.model.setting.c_str(), run.training.steps(), settings.context, losses.mean());
  for (Index from = 0; from < length; from = std::max<Index>(1, 2 * from)) {
    const Index to = std::min(length, std::max<Index>(1, 2 * from));
    std::printf("%6td … %-6td %.4f\n", from, to - 1, losses.segment(from, to - from).mean());
  }
  if (csv.empty()) return;
  sympow::io::OutputFile file("--csv", csv);
  std::ostream& table = file.open();
  table << "position,loss\n";
  for (Index t = 0; t < length; ++t) table << t << ',' << losses[t] << '\n';
  file.finish();
  file.commit();
}

}  // namespace language_model
