// A model of bytes: trained, read, and asked to go on.
#include "generation.hpp"

namespace {

using namespace language_model;

constexpr const char* usage =
    R"(A GPT-style model of bytes on symmetric-power attention, and on what it is compared with.

  language_model train    --data TEXT --out FOLDER [--setting conformal] [--context 512] [--steps 1000] …
  language_model evaluate --out FOLDER [--data TEXT] [--length 0] [--windows 16] [--threads 0] [--csv FILE]
  language_model generate --out FOLDER --prompt WORDS [--bytes 400] [--temperature .8] [--seed 1] [--state FILE]

train      goes on from the newest whole checkpoint of the folder, whose options are its own, and writes loss.csv, a row
           a step. Its options:
)";

constexpr const char* more = R"(
evaluate   the mean loss, in nats a byte, at every position of held-out texts of --length bytes, 0 for 8 times the
           training context: means of octaves on the standard output, all of them in FILE
generate   the prompt, and what the model makes of it; what it remembers then is left in FILE, and if that is there at
           the start the text goes on from it, in the bits that it would have without the break

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
  refuse(command, " is no command, must be train, evaluate or generate; see language_model help");
}

}  // namespace

int main(int argc, char** argv) {
  Eigen::setNbThreads(1);  // threads run over the texts of a batch
  const std::vector<std::string> words(argv + 1, argv + argc);
  try {
    if (words.empty() || words[0] == "help" || words[0] == "-h" || words.back() == "--help")
      print_usage();
    else
      run(words[0], {words.begin() + 1, words.end()});
    sympow::io::require_printed();
    return words.empty() ? 2 : 0;
  } catch (const std::bad_alloc&) {
    std::cerr << "language_model: out of memory\n";
    return 2;
  } catch (const std::exception& error) {
    std::cerr << "language_model: " << error.what() << '\n';
    return 2;
  }
}
