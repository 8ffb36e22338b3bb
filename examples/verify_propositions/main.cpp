// Checks every statement of the source papers on this machine and says which hold and which are misprinted.
//
//     verify_propositions [--scalar float|double] [--filter ID] [--seed N] [--json FILE]
//     verify_propositions --dualities [--scalar float|double] [--seed N]
//
// One line a statement: its id, the verdict, the residual and the bound that rounding sets, where it stands. `--filter` keeps the
// statements whose id begins with ID. `--dualities` prints the linear systems beside their softmax duals instead. Exit status: 0 all as
// expected, 1 something is not, 2 bad options.
#include "decide.hpp"
#include "print_dualities.hpp"

#include <cmath>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <map>
#include <stdexcept>
#include <string>

using namespace sympow::verify;

namespace {

struct Arguments {
  std::string scalar = "double", filter, json;
  std::uint64_t seed = 1;
  bool dualities = false;
};

Arguments parse(int argc, char** argv) {
  Arguments arguments;
  for (int n = 1; n < argc; n += 2) {
    const std::string option = argv[n];
    if (option == "--dualities") {
      arguments.dualities = true;
      --n;  // it has no value
      continue;
    }
    if (n + 1 == argc) throw std::invalid_argument(option + " needs a value");
    const std::string value = argv[n + 1];
    if (option == "--scalar" && (value == "float" || value == "double")) {
      arguments.scalar = value;
    } else if (option == "--filter") {
      arguments.filter = value;
    } else if (option == "--json") {
      arguments.json = value;
    } else if (option == "--seed" && !value.empty() && value.size() <= 18 &&
               value.find_first_not_of("0123456789") == std::string::npos) {
      arguments.seed = std::stoull(value);
    } else {
      throw std::invalid_argument("cannot use " + option + " " + value);
    }
  }
  if (arguments.dualities && !(arguments.filter.empty() && arguments.json.empty()))
    throw std::invalid_argument("--dualities goes with --scalar and --seed alone");
  return arguments;
}

const char* verdict(const Proposition& p) {
  if (!p.as_expected()) return "UNEXPECTED";
  switch (p.kind) {
    case Kind::statement:
      return "holds";
    case Kind::erratum:
      return "erratum";
    case Kind::control:
      return "control";
    case Kind::documentation:
      return "documented";
  }
  return "";
}

void print(const Proposition& p) {
  std::printf("%-11s %-12s ", verdict(p), p.id.c_str());
  if (p.kind == Kind::documentation)
    std::printf("%-21s", "");
  else
    std::printf("%8.1e %s %8.1e  ", p.residual + 0., p.holds() ? "<=" : "> ", p.bound);
  std::printf("%s  [%s]\n", p.statement.c_str(), p.source.c_str());
  if (p.kind == Kind::erratum)
    std::printf("%-11s %-12s %8.1e %s %8.1e  %s\n", "  true is", "", p.corrected_residual,
                p.correction_holds() ? "<=" : "> ", p.corrected_bound, p.correction.c_str());
  if (p.kind == Kind::documentation) std::printf("%-46s%s\n", "", p.correction.c_str());
}

std::string quoted(const std::string& text) {
  std::string result = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') result += '\\';
    result += c;
  }
  return result + '"';
}

// JSON has no infinity and no NaN; they become null.
std::string number(double x) {
  if (!std::isfinite(x)) return "null";
  char text[32];
  std::snprintf(text, sizeof text, "%.17g", x);
  return text;
}

void write_json(const std::string& path, const Arguments& arguments, const std::vector<Proposition>& propositions) {
  std::ofstream file(path);
  file << "{\"scalar\": " << quoted(arguments.scalar) << ", \"seed\": " << arguments.seed << ", \"propositions\": [";
  const char* separator = "\n";
  for (const Proposition& p : propositions) {
    file << separator << "  {\"id\": " << quoted(p.id) << ", \"verdict\": " << quoted(verdict(p))
         << ", \"statement\": " << quoted(p.statement) << ", \"source\": " << quoted(p.source)
         << ", \"residual\": " << number(p.residual) << ", \"bound\": " << number(p.bound)
         << ", \"correction\": " << quoted(p.correction) << ", \"corrected_residual\": " << number(p.corrected_residual)
         << ", \"corrected_bound\": " << number(p.corrected_bound) << "}";
    separator = ",\n";
  }
  file << "\n]}\n";
  if (!file.flush()) throw std::invalid_argument("cannot write " + path);
}

int run(const Arguments& arguments) {
  if (arguments.dualities) return print_dualities(arguments.scalar, arguments.seed) ? 0 : 1;
  std::vector<Proposition> propositions =
      arguments.scalar == "float" ? decide<float>(arguments.seed) : decide<double>(arguments.seed);
  std::erase_if(propositions, [&](const Proposition& p) { return !p.id.starts_with(arguments.filter); });
  if (propositions.empty()) throw std::invalid_argument("no statement has an id that begins with " + arguments.filter);
  std::printf(
      "Residual and bound of every statement; where it stands: A Conformal Transformations for Symmetric Power "
      "Transformers, B Improving\n"
      "Symmetric Power Transformers with Conformal Transformations, C Symmetric Power Transformers, D On the "
      "Legacy of\n"
      "Linear Transformers in Positional Embeddings, E Equivariant Structured Positional Rotations. seed %llu\n\n",
      static_cast<unsigned long long>(arguments.seed));
  std::map<std::string, int> count;
  for (const Proposition& p : propositions) {
    print(p);
    ++count[verdict(p)];
  }
  if (!arguments.json.empty()) write_json(arguments.json, arguments, propositions);
  std::printf(
      "\n%zu statements in %s: %d hold, %d are errata (the printed form fails, the corrected one holds), %d controls "
      "fail as they "
      "must,\n%d are about the papers' listings as programs and documented, %d unexpected\n",
      propositions.size(), arguments.scalar.c_str(), count["holds"], count["erratum"], count["control"],
      count["documented"], count["UNEXPECTED"]);
  return count["UNEXPECTED"] == 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  const char* usage =
      "usage: verify_propositions [--scalar float|double] [--filter ID] [--seed N] [--json FILE]\n"
      "       verify_propositions --dualities [--scalar float|double] [--seed N]\n";
  try {
    if (argc == 2 && std::string(argv[1]) == "--help") {
      std::cout << usage
                << "Checks every statement of the source papers; --filter keeps those whose id begins with ID.\n"
                << "--dualities prints the linear systems beside their softmax duals instead.\n";
      return 0;
    }
    return run(parse(argc, argv));
  } catch (const std::invalid_argument& error) {
    std::cerr << "verify_propositions: " << error.what() << '\n' << usage;
    return 2;
  }
}
