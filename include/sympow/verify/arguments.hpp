// The command line of a program that decides propositions.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include <sympow/verify/papers.hpp>
#include <sympow/verify/report_table.hpp>
#include <sympow/verify/selection.hpp>

namespace SYMPOW_NAMESPACE::verify {

/// What a program was asked for.
struct Arguments {
  std::string scalar = "double";             ///< the type to decide in, "double" or "float"
  std::uint64_t seed = 1;                    ///< of the random inputs
  Selection selection;                       ///< which propositions to report; groups are decided whole
  bool list = false,                         ///< ids, kinds and statements without residuals
      explain = false,                       ///< with counterexamples and the reason of every bound that has one
      exact = false,                         ///< decide without rounding what can be
      help = false;                          ///< the usage and nothing else
  std::map<std::string, std::string> files;  ///< names by option: {"--json", "report.json"}
  std::string command;                       ///< an option of the program's own, such as "--dualities"
};

namespace detail {

/// Values between commas.
[[nodiscard]] inline std::vector<std::string> between_commas(const std::string& text) {
  std::vector<std::string> values(1);
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

[[nodiscard]] inline bool is_one_of(const std::string& value, const std::vector<std::string>& values) {
  for (const std::string& other : values)
    if (value == other) return true;
  return false;
}

[[nodiscard]] inline std::string joined(const std::vector<std::string>& values, const std::string& separator) {
  std::string text;
  for (const std::string& value : values) text += (text.empty() ? "" : separator) + value;
  return text;
}

}  // namespace detail

/// Reads the arguments behind the program's name. Throws std::invalid_argument that names the argument and its value.
///
/// `commands` are options of the program's own, which go with --scalar and --seed alone; `scalars` are "double",
/// "float" or both; `files` are options that are followed by the name of a file.
[[nodiscard]] inline Arguments parse_arguments(const std::vector<std::string>& given, const std::vector<Paper>& papers,
                                               const std::vector<std::string>& scalars,
                                               const std::vector<std::string>& commands,
                                               const std::vector<std::string>& files) {
  Arguments arguments;
  arguments.scalar = scalars.front();
  std::string only_with_propositions;
  const std::vector<std::string> verdicts(Counts::names.begin(), Counts::names.end());
  std::vector<std::string> letters;
  for (const Paper& paper : papers) letters.push_back(paper.letter);

  for (std::size_t n = 0; n < given.size(); ++n) {
    const std::string& option = given[n];
    if (option == "--help" || option == "-h") {
      arguments.help = true;
      continue;
    }
    if (detail::is_one_of(option, commands)) {
      arguments.command = option;
      continue;
    }
    if (option != "--scalar" && option != "--seed") only_with_propositions = option;
    if (option == "--list" || option == "--explain" || option == "--exact") {
      (option == "--list" ? arguments.list : option == "--explain" ? arguments.explain : arguments.exact) = true;
      continue;
    }
    const bool is_file = detail::is_one_of(option, files);
    if (!is_file && !detail::is_one_of(option, {"--scalar", "--seed", "--filter", "--words", "--paper", "--verdict"}))
      throw std::invalid_argument("unknown argument " + option);
    if (n + 1 == given.size() || given[n + 1].empty() || given[n + 1].starts_with("--"))
      throw std::invalid_argument(option + " needs a value" +
                                  (n + 1 < given.size() ? ", not '" + given[n + 1] + "'" : ""));
    const std::string& value = given[++n];

    const auto add = [&](std::vector<std::string>& to, const std::vector<std::string>* allowed) {
      for (const std::string& one : detail::between_commas(value)) {
        if (one.empty()) throw std::invalid_argument(option + " " + value + ": nothing stands before or after a comma");
        if (allowed != nullptr && !detail::is_one_of(one, *allowed))
          throw std::invalid_argument(option + " " + one + ": one of " + detail::joined(*allowed, ", ") + " is needed");
        to.push_back(one);
      }
    };
    if (option == "--scalar") {
      if (!detail::is_one_of(value, scalars))
        throw std::invalid_argument(option + " " + value + ": " + detail::joined(scalars, " or ") + " is needed");
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
