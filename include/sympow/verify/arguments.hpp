// A program that decides propositions, and its command line.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include <sympow/verify/papers.hpp>
#include <sympow/verify/report_json.hpp>
#include <sympow/verify/selection.hpp>

namespace SYMPOW_NAMESPACE::verify {

/// An option that prints something else instead of deciding propositions.
struct Command {
  std::string option,                                          ///< "--dualities"
      help;                                                    ///< what it does, for --help
  bool (*run)(const std::string& scalar, std::uint64_t seed);  ///< whether all is well
};

/// A file that a program can write of what it has decided.
struct ReportFormat {
  std::string option;                     ///< "--json", in front of the file's name
  std::string (*written)(const Report&);  ///< what it holds
};

/// How a statement is decided without rounding; `corrected` for an erratum. Statements of one group are decided by
/// several threads at once, if the program is compiled with OpenMP.
struct ExactDecision {
  std::string id;                                              ///< of a proposition
  std::function<Decision(std::uint64_t seed)> statement;       ///< as printed
  std::function<Decision(std::uint64_t seed)> corrected = {};  ///< what is true instead
};

/// What `run_program` is to decide.
struct Program {
  std::string name;                                             ///< of the program, for its messages
  std::string about;                                            ///< a sentence for --help
  std::vector<PropositionGroup> (*groups_double)();             ///< what to decide in double
  std::vector<PropositionGroup> (*groups_float)() = nullptr;    ///< and in float; without it there is no --scalar float
  std::vector<Paper> papers = {};                               ///< what the letters of sources stand for
  std::vector<Command> commands = {};                           ///< options of your own
  std::vector<ExactDecision> (*exact)() = nullptr;              ///< what --exact decides; without it it is refused
  std::vector<ReportFormat> files = {{"--json", json_report}};  ///< what can be written
};

/// What a program was asked for.
struct Arguments {
  std::string text;                               ///< all of it
  std::string scalar = "double";                  ///< the type to decide in, "double" or "float"
  std::uint64_t seed = 1;                         ///< of the random inputs
  Selection selection = {};                       ///< which propositions to report; groups are decided whole
  bool list = false,                              ///< ids, kinds and statements without residuals
      explain = false,                            ///< with counterexamples and the reason of every bound that has one
      exact = false,                              ///< decide without rounding what can be
      help = false;                               ///< the usage and nothing else
  std::map<std::string, std::string> files = {};  ///< names by option: {"--json", "report.json"}
  std::string command = {};                       ///< an option of the program's own, such as "--dualities"
};

namespace detail {

using Words = std::vector<std::string>;

/// Values between commas.
[[nodiscard]] inline Words between_commas(const std::string& text) {
  Words values(1);
  for (const char c : text)
    if (c == ',')
      values.emplace_back();
    else
      values.back() += c;
  return values;
}

[[nodiscard]] inline std::uint64_t parse_seed(const std::string& value) {
  if (value.empty() || value.size() > 18 || value.find_first_not_of("0123456789") != std::string::npos)
    throw std::invalid_argument("--seed " + value + ": a whole number of up to 18 digits is needed");
  return std::strtoull(value.c_str(), nullptr, 10);
}

/// The names of options, of files or commands.
template <class Option>
[[nodiscard]] Words names_of(const std::vector<Option>& options) {
  Words names;
  for (const Option& one : options) names.push_back(one.option);
  return names;
}

}  // namespace detail

/// Reads the arguments behind the program's name. Throws std::invalid_argument that names the argument and its value.
[[nodiscard]] inline Arguments parse_arguments(const std::vector<std::string>& given, const Program& program) {
  using detail::Words, detail::joined;
  const auto has = [](const Words& words, const std::string& word) { return std::ranges::count(words, word) > 0; };
  Arguments arguments{.text = joined(given, " ")};
  std::string only_with_propositions;
  const Words verdicts(Counts::names.begin(), Counts::names.end()), files = detail::names_of(program.files),
                                                                    commands = detail::names_of(program.commands);
  Words letters, scalars = {"double"};
  for (const Paper& paper : program.papers) letters.push_back(paper.letter);
  if (program.groups_float != nullptr) scalars.emplace_back("float");
  const std::map<std::string, bool*> switches = {
      {"--list", &arguments.list}, {"--explain", &arguments.explain}, {"--exact", &arguments.exact}};

  for (std::size_t n = 0; n < given.size(); ++n) {
    const std::string& option = given[n];
    if (option == "--help" || option == "-h") {
      arguments.help = true;
      continue;
    }
    if (has(commands, option)) {
      arguments.command = option;
      continue;
    }
    if (option != "--scalar" && option != "--seed") only_with_propositions = option;
    if (const auto found = switches.find(option); found != switches.end()) {
      *found->second = true;
      continue;
    }
    if (!has(files, option) && !has({"--scalar", "--seed", "--filter", "--words", "--paper", "--verdict"}, option))
      throw std::invalid_argument("unknown argument " + option);
    if (n + 1 == given.size() || given[n + 1].empty() || given[n + 1].starts_with("--"))
      throw std::invalid_argument(option + " needs a value" +
                                  (n + 1 < given.size() ? ", not '" + given[n + 1] + "'" : ""));
    const std::string& value = given[++n];
    const auto add = [&](Words& to, const Words* allowed) {
      for (const std::string& one : detail::between_commas(value)) {
        if (one.empty()) throw std::invalid_argument(option + " " + value + ": nothing stands before or after a comma");
        if (allowed != nullptr && !has(*allowed, one))
          throw std::invalid_argument(option + " " + one + ": one of " + joined(*allowed, ", ") + " is needed");
        to.push_back(one);
      }
    };
    if (option == "--scalar") {
      if (!has(scalars, value))
        throw std::invalid_argument(option + " " + value + ": " + joined(scalars, " or ") + " is needed");
      arguments.scalar = value;
    } else if (option == "--seed") {
      arguments.seed = detail::parse_seed(value);
    } else if (option == "--filter") {
      add(arguments.selection.ids, nullptr);
    } else if (option == "--words") {
      arguments.selection.words.push_back(value);
    } else if (option == "--paper") {
      add(arguments.selection.papers, &letters);
    } else if (option == "--verdict") {
      add(arguments.selection.verdicts, &verdicts);
    } else if (value == "-") {
      throw std::invalid_argument(option + " -: names no file");
    } else if (!arguments.files.emplace(option, value).second) {
      throw std::invalid_argument(option + " " + value + ": " + option + " is given twice");
    }
  }
  if (!arguments.command.empty() && !only_with_propositions.empty())
    throw std::invalid_argument(only_with_propositions + " does not go with " + arguments.command);
  if (arguments.exact && arguments.list) throw std::invalid_argument("--exact does not go with --list");
  return arguments;
}

}  // namespace SYMPOW_NAMESPACE::verify
