// Training and evaluation: runs, and the folders that they are kept in.
#pragma once

#include "corpus.hpp"
#include "settings.hpp"

#include <sympow/io/checkpoints.hpp>

#include <chrono>
#include <cstdio>
#include <iomanip>
#include <iostream>
#include <optional>

namespace language_model {

/// A run: its settings, what it has made, and the checkpoint that it was read from, if there is one.
struct Run {
  Settings settings;
  Training<float> training;
  sympow::io::Checkpoint checkpoint;

  /// At its begin.
  explicit Run(const Settings& of) : settings(of), training(Model<float>(of.model), of.descent, of.seed) {}
  /// At a checkpoint. Throws `InvalidArgument`.
  explicit Run(const sympow::io::Checkpoint& found) : Run(settings_of(found)) {
    (void)sympow::io::read_safetensors(found.path, tensors());
    for (const auto& [name, x] : training.all())
      if (!x.allFinite()) refuse(found.path, ": ", name, " has numbers that are not finite");
    training.set_steps(found.step);
    checkpoint = found;
  }

  /// All that it has made, where it lies.
  [[nodiscard]] std::vector<sympow::io::Tensor> tensors() {
    std::vector<sympow::io::Tensor> list;
    for (auto& [name, x] : training.all())
      list.push_back({name, {x.cols(), x.rows()}, {x.data(), static_cast<std::size_t>(x.size())}});
    return list;
  }

 private:
  static Settings settings_of(const sympow::io::Checkpoint& found) {
    Words words = found.metadata;
    words["out"] = std::filesystem::path(found.path).parent_path().string();  // wherever it was then
    const Settings settings = Options(words).take_settings();
    require_model(settings.model);
    if (bytes_of_weights(settings.model) > static_cast<double>(std::filesystem::file_size(found.path)))
      refuse(found.path, ": is too short for the weights of its settings");
    return settings;
  }
};

/// The run of a folder, at its newest whole checkpoint; none if there is no checkpoint. Throws `InvalidArgument` if
/// there are some and none is whole.
inline std::optional<Run> newest_run(const std::string& folder) {
  std::optional<Run> run;
  (void)sympow::io::newest_checkpoint(folder, std::cerr, [&](const auto& found) { run.emplace(found); });
  if (!run && !sympow::io::detail::list_checkpoints(folder).empty())
    refuse("--out ", folder, ": none of its checkpoints can be taken; take another one");
  return run;
}
/// The newest run of a folder. Throws `InvalidArgument` if it has no checkpoint.
inline Run trained_run(const std::string& folder) {
  if (std::optional<Run> run = newest_run(folder)) return *std::move(run);
  refuse("--out ", folder, ": there is no checkpoint; train first");
}

/// The settings of a run that goes on: those of its checkpoint, but what is given anew. Throws `InvalidArgument` where
/// its weights would have been others.
inline Settings settings_to_go_on(const Run& run, const Settings& asked, const Words& given) {
  Words words = words_of(run.settings), is = words_of(asked);
  Settings::for_each(asked, [&](const std::string& name, const auto&, const char*, bool of_run) {
    if (!given.contains(name) || is[name] == words[name]) return;
    if (of_run && !words[name].empty())
      refuse("--", name, " is ", is[name], ", but ", words[name], " in ", run.checkpoint.path, "; take another --out");
    words[name] = is[name];
  });
  return Options(words).take_settings();
}

/// Throws `InvalidArgument`.
inline Corpus corpus_of(const Settings& settings) {
  if (settings.data.empty()) refuse("--data is missing: a file or a folder");
  return Corpus(settings.data);
}

/// Opens a table of losses for more rows, cut after a step: a killed run has written rows after its last checkpoint.
inline std::ofstream losses_up_to(const std::string& path, Index step) {
  std::uintmax_t kept = 0;
  if (std::filesystem::is_regular_file(path)) {
    std::ifstream old(path);
    for (std::string row; std::getline(old, row) && !old.eof() && std::atoll(row.c_str()) <= step;)
      kept += row.size() + 1;
    std::filesystem::resize_file(path, kept);
  }
  std::ofstream table(path, std::ios::app);
  if (kept == 0) table << "step,bytes,loss,gradient_length,rate,seconds\n";
  return table;
}

/// Trains until `steps`, from the newest whole checkpoint of the folder on. A run that was killed and goes on makes the
/// same weights, bit for bit, as one that was not. Throws `InvalidArgument`, `CannotWrite`.
inline void train(Options options) {
  const Words given = options.given();
  Settings settings = options.take_settings();
  options.end();
  std::optional<sympow::io::Checkpoints> checkpoints;
  if (std::filesystem::exists(settings.out)) checkpoints.emplace(settings.out);
  std::optional<Run> run = newest_run(settings.out);
  if (run)
    settings = settings_to_go_on(*run, settings, given);
  else
    require_model(settings.model);
  const Corpus corpus = corpus_of(settings);
  (void)corpus.training.window(settings.seed, 0, 0, settings.context + 1);  // throws before anything is made
  require_step(settings);
  if (run)
    std::cerr << "going on from " << run->checkpoint.path << '\n';
  else
    run.emplace(settings);
  if (!checkpoints) checkpoints.emplace(settings.out);
  auto& training = run->training;
  const std::string csv = settings.out + "/loss.csv";
  std::ofstream table = losses_up_to(csv, training.steps());

  Index weights = 0;
  for (const auto& [name, x] : training.all()) weights += name.starts_with("adam") ? 0 : x.size();
  std::cerr << settings.model.setting << ", " << weights << " weights, " << corpus.training.texts.size()
            << " documents to learn from, " << corpus.held_out.texts.size() << " held out\n";

  const int threads = sympow::detail::thread_count(settings.threads);
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
    if (!table) sympow::detail::raise<sympow::io::CannotWrite>(csv, ": cannot be written");
    if (seconds - last_said > 5 || step == last) {
      const double steps_of_second = static_cast<double>(step - first) / seconds;
      std::cerr << "step " << step << " of " << last << "  loss " << std::setprecision(4) << report.loss << "  "
                << steps_of_second * static_cast<double>(bytes_of_step) << " bytes/s  " << std::setprecision(3)
                << static_cast<double>(last - step) / steps_of_second << " s left" << std::endl;
      last_said = seconds;
    }
    if (step % settings.checkpoint_every == 0 || step == last)
      checkpoints->save(step, run->tensors(), words_of(settings), static_cast<std::size_t>(settings.keep));
  }
}

/// The mean loss at every position of held-out texts: prints means of octaves, and writes all of it to a table. Throws
/// `InvalidArgument`.
inline void evaluate(Options options) {
  const std::string folder = options.take_out();
  std::string data, csv;
  Index length = 0, windows = 16;
  int threads = 0;
  options.take("data", data);
  options.take("threads", threads);
  options.take("csv", csv);
  options.take("length", length);
  options.take("windows", windows);
  options.end();

  const Run run = trained_run(folder);
  Settings settings = run.settings;
  if (length == 0) length = 8 * settings.context;
  if (!data.empty()) settings.data = data;
  const Corpus corpus = corpus_of(settings);
  (void)corpus.held_out.window(0, 0, 0, length + 1);  // throws before memory is asked for
  std::optional<sympow::io::OutputFile> file;
  if (!csv.empty()) file.emplace("--csv", csv);
  if (file) file->open();
  std::vector<Pass<float>> passes;
  Eigen::MatrixXd of_windows(length, windows);
  sympow::detail::parallel_for(windows, sympow::detail::threads_of_program(threads), passes, [&](Index n, auto& pass) {
    const auto text = corpus.held_out.window(0, 0, n, length + 1);
    (void)run.training.model().evaluate(run.training.weights(), text, pass);
    of_windows.col(n) = pass.losses;
  });
  const Eigen::VectorXd losses = of_windows.rowwise().mean();
  if (!losses.allFinite()) refuse(run.checkpoint.path, ": its weights make losses that are not finite");
  std::printf("%s after %td steps of context %td: mean loss %.4f\npositions      loss\n",
              settings.model.setting.c_str(), run.training.steps(), settings.context, losses.mean());
  for (Index from = 0; from < length; from = std::max<Index>(1, 2 * from)) {
    const Index to = std::min(length, std::max<Index>(1, 2 * from));
    std::printf("%6td … %-6td %.4f\n", from, to - 1, losses.segment(from, to - from).mean());
  }
  if (!file) return;
  std::ostream& table = file->open();
  table << "position,loss\n";
  for (Index t = 0; t < length; ++t) table << t << ',' << losses[t] << '\n';
  file->finish();
  file->commit();
}

}  // namespace language_model
