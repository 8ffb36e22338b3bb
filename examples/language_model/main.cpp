// A model of bytes: trained, read, and asked to go on.
#include "plots.hpp"
#include "runs.hpp"

#include <cstdio>

namespace {

using namespace language_model;

constexpr const char* usage =
    R"(A GPT-style model of bytes on symmetric-power attention, and on what it is compared with.

  language_model train    --data TEXT --out FOLDER [--setting conformal] [--context 512] [--steps 1000] …
  language_model evaluate --out FOLDER [--data TEXT] [--length BYTES] [--windows 16] [--csv FILE]
  language_model generate --out FOLDER --prompt WORDS [--bytes 400] [--temperature .8] [--seed 1]
  language_model plot     FOLDER

train      goes on from the newest whole checkpoint of the folder and writes loss.csv, a row a step. Its options:
)";

constexpr const char* more = R"(
evaluate   the mean loss, in nats a byte, at every position of held-out texts, to 8 times the training context: means of
           octaves on the standard output, all of them in FILE
generate   the prompt, and what the model makes of it
plot       the figures of docs/study.md, into the folder of its tables

Exit status: 0 done, 2 bad input, with one line that says what.
)";

void print_usage() {
  std::cout << usage;
  const Settings settings;
  Settings::for_each(settings, [](const std::string& name, const auto& field, const char* help, bool) {
    std::cout << "           " << std::left << std::setw(20) << name << help << ", default "
              << (words_of(field).empty() ? "none" : words_of(field)) << '\n';
  });
  std::cout << more;
}

void run(const std::string& command, std::map<std::string, std::string> options) {
  Settings settings;
  if (command == "train") {
    Settings::for_each(settings,
                       [&](const std::string& name, auto& field, const char*, bool) { take(options, name, field); });
    refuse_others(options);
    if (settings.data.empty()) sympow::detail::raise<sympow::InvalidArgument>("--data is missing: a file or a folder");
    for (const auto& [name, number] : {std::pair{"--context", settings.context},
                                       {"--batch", settings.batch},
                                       {"--checkpoint_every", settings.checkpoint_every},
                                       {"--keep", settings.keep}})
      if (number < 1) sympow::detail::raise<sympow::InvalidArgument>(name, " is ", number, ", must be at least 1");
    return train(settings, std::cerr);
  }
  take(options, "--out", settings.out);
  const Trained trained(settings.out);
  if (command == "evaluate") {
    Index length = 8 * trained.settings.context, windows = 16;
    std::string csv;
    settings.data = trained.settings.data;
    take(options, "--data", settings.data);
    take(options, "--length", length);
    take(options, "--windows", windows);
    take(options, "--threads", settings.threads);
    take(options, "--csv", csv);
    refuse_others(options);
    if (length < 1 || windows < 1)
      sympow::detail::raise<sympow::InvalidArgument>("--length and --windows must be at least 1");
    const Eigen::VectorXd losses =
        evaluate(trained, Corpus(settings.data), length, windows, sympow::detail::threads_of(settings.threads));
    std::cout << trained.settings.model.setting << " after " << trained.steps << " steps of context "
              << trained.settings.context << ": mean loss " << losses.mean() << "\npositions      loss\n";
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
  } else {
    Index count = 400;
    double temperature = .8;
    std::string prompt;
    take(options, "--prompt", prompt);
    take(options, "--bytes", count);
    take(options, "--temperature", temperature);
    take(options, "--seed", settings.seed);
    refuse_others(options);
    generate(trained, prompt, count, temperature, settings.seed, std::cout);
  }
}

}  // namespace

int main(int argc, char** argv) {
  Eigen::setNbThreads(1);  // threads run over the texts of a batch
  const std::vector<std::string> words(argv + 1, argv + argc);
  if (words.empty() || words[0] == "help" || words[0] == "--help" || words[0] == "-h") {
    print_usage();
    return words.empty() ? 2 : 0;
  }
  try {
    if (words[0] == "plot") {
      if (words.size() != 2) sympow::detail::raise<sympow::InvalidArgument>("plot takes the folder of the tables");
      draw_study(words[1]);
      return 0;
    }
    if (words[0] != "train" && words[0] != "evaluate" && words[0] != "generate")
      sympow::detail::raise<sympow::InvalidArgument>(words[0], " is no command; see language_model help");
    run(words[0], options_of({words.begin() + 1, words.end()}));
    return 0;
  } catch (const std::exception& error) {
    std::cerr << "language_model: " << error.what() << '\n';
    return 2;
  }
}
