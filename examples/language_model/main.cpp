// A model of bytes: trained, read, and asked to go on.
#include "generation.hpp"
#include "plots.hpp"

namespace {

using namespace language_model;

constexpr const char* usage =
    R"(A GPT-style model of bytes on symmetric-power attention, and on what it is compared with.

  language_model train    --data TEXT --out FOLDER [--setting conformal] [--context 512] [--steps 1000] …
  language_model evaluate --out FOLDER [--data TEXT] [--length BYTES] [--windows 16] [--threads 0] [--csv FILE]
  language_model generate --out FOLDER --prompt WORDS [--bytes 400] [--temperature .8] [--seed 1] [--state FILE]
  language_model plot     FOLDER

train      goes on from the newest whole checkpoint of the folder and writes loss.csv, a row a step. Its options:
)";

constexpr const char* more = R"(
evaluate   the mean loss, in nats a byte, at every position of held-out texts, to 8 times the training context: means of
           octaves on the standard output, all of them in FILE
generate   the prompt, and what the model makes of it; what it remembers then is left in FILE, and if that is there at
           the start the text goes on from it, in the bits that it would have without the break
plot       the figures of docs/study.md, into the folder of its tables

Exit status: 0 done, 2 bad input, with one line that says what.
)";

void print_usage() {
  std::cout << usage;
  const Settings settings;
  Settings::for_each(settings, [](const std::string& name, const auto& field, const char* help, bool) {
    std::cout << "           --" << std::left << std::setw(18) << name << help << ", default "
              << (words_of(field).empty() ? "none" : words_of(field)) << '\n';
  });
  std::cout << more;
}

void run(const std::string& command, const std::vector<std::string>& words) {
  if (command == "train") return train(Options(words));
  if (command == "evaluate") return evaluate(Options(words));
  if (command == "generate") return generate(Options(words));
  if (command != "plot")
    sympow::detail::raise<sympow::InvalidArgument>(command, " is no command; see language_model help");
  if (words.size() != 1) sympow::detail::raise<sympow::InvalidArgument>("plot takes the folder of the tables");
  draw_study(words[0]);
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
    run(words[0], {words.begin() + 1, words.end()});
    return 0;
  } catch (const std::exception& error) {
    std::cerr << "language_model: " << error.what() << '\n';
    return 2;
  }
}
