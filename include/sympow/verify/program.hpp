// A whole program that decides propositions, the library's or your own.
#pragma once

#include <cstdio>
#include <exception>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <sympow/core/parallel.hpp>
#include <sympow/io/output_file.hpp>
#include <sympow/verify/arguments.hpp>

namespace SYMPOW_NAMESPACE::verify {

namespace detail {

[[nodiscard]] inline std::string usage(const Program& program) {
  std::string text =
      "usage: " + program.name + " [OPTIONS]\n" + program.about +
      "\n"
      "\n"
      "which:  --filter ID        ids that begin with ID, in either case; several with commas or by repeating it\n"
      "        --words \"WORDS\"    statements or corrections that contain WORDS\n"
      "        --verdict VERDICT  holds, erratum, control, documented or unexpected\n";
  if (!program.papers.empty()) {
    text += "        --paper LETTER     statements of a paper:";
    for (const Paper& paper : program.papers) text += " " + paper.letter;
    text += "\n";
  }
  text +=
      "        Of one kind any one must fit, of several kinds all.\n"
      "how:    --list             ids, kinds and statements without residuals\n"
      "        --explain          counterexamples, and the reason of every bound that has one\n";
  if (program.exact != nullptr) text += "        --exact            decide over the rational numbers what can be\n";
  text += std::string("        --scalar TYPE      ") +
          (program.groups_float != nullptr ? "double or float" : "double") + "\n";
  text += "        --seed N           of the random inputs, 1 unless given\n";
  for (const ReportFormat& format : program.files) text += "file:   " + format.option + " FILE\n";
  for (const Command& command : program.commands) text += "or:     " + padded(command.option, 19) + command.help + "\n";
  return text +
         "exit status: 0 all as expected, 1 something is not, 2 wrong arguments or output that cannot be written\n";
}

[[nodiscard]] inline std::string heading(const Report& report) {
  std::string text = report.program + ": " + report.setting() + "\n";
  for (const Paper& paper : report.papers) text += "  " + paper.letter + "  " + paper.reference() + "\n";
  return text + "\n";
}

inline void put(const std::string& text, std::FILE* out) {
  std::fwrite(text.data(), 1, text.size(), out);
  std::fflush(out);
}

/// Throws `io::CannotWrite` if the text is lost.
inline void put_all(const std::string& text, std::FILE* out) {
  put(text, out);
  io::require_printed(out);
}

/// A file and what it is to hold.
struct ReportFile {
  std::unique_ptr<io::OutputFile> file;
  std::string (*written)(const Report&);
};

/// The files that are asked for. Each was opened, to know before anything is decided that it can be; nothing is left of
/// that but an open device.
inline std::vector<ReportFile> open_files(const Program& program, const Arguments& arguments) {
  std::vector<ReportFile> files;
  for (const auto& [option, written] : program.files) {
    const auto given = arguments.files.find(option);
    if (given == arguments.files.end()) continue;
    auto file = std::make_unique<io::OutputFile>(option, given->second);
    for (const ReportFile& other : files) file->require_other_than(*other.file);
    file->open();
    if (!file->is_device()) file->discard();
    files.push_back({std::move(file), written});
  }
  return files;
}

/// Adds to a proposition what is decided of it without rounding.
inline void decide_exactly(Proposition& p, const std::vector<ExactDecision>& exact, std::uint64_t seed) {
  for (const ExactDecision& one : exact)
    if (one.id == p.id) {
      p.decision = one.statement(seed);
      if (one.corrected) p.corrected.decision = one.corrected(seed);
    }
}

/// Decides the groups one by one, what is exact of each by all threads, and prints what is selected of each as soon as
/// it is decided. A list says nothing of progress.
inline void decide(Report& report, const std::vector<PropositionGroup>& groups, const Arguments& arguments,
                   const std::vector<ExactDecision>& exact, const sympow::detail::Threads& threads, std::FILE* out,
                   std::FILE* progress) {
  int done = 0;
  for (const auto& [name, decide_group] : groups) {
    ++done;
    if (!arguments.list) put(print("  deciding group %d of %zu: %s\n", done, groups.size(), name), progress);
    Ledger ledger;
    decide_group(ledger, report.seed);
    Selection of_any_verdict = arguments.selection;
    of_any_verdict.verdicts.clear();
    std::vector<Proposition> found = ledger.propositions();
    std::erase_if(found, [&](const Proposition& p) { return !of_any_verdict(p); });
    threads.run(std::ssize(found), threads.count,
                [&](Index n, int) { decide_exactly(found[static_cast<std::size_t>(n)], exact, report.seed); });
    for (const Proposition& p : found) {
      if (!arguments.selection(p)) continue;
      put_all(arguments.list ? list_line_of(p) : lines_of(p, arguments.explain), out);
      report.propositions.push_back(p);
    }
  }
}

inline int run(const Program& program, const Arguments& arguments, const sympow::detail::Threads& threads,
               std::FILE* out, std::FILE* progress) {
  for (const Command& command : program.commands)
    if (command.option == arguments.command) {
      const bool is_well = command.run(arguments.scalar, arguments.seed);
      io::require_printed();
      return is_well ? 0 : 1;
    }

  if (arguments.exact && program.exact == nullptr)
    throw std::invalid_argument(
        "--exact: this program decides nothing exactly: its `Program::exact` is not set, as where it was compiled "
        "without "
        "GMP (Debian: libgmp-dev)");
  const std::vector<ReportFile> files = open_files(program, arguments);
  Report report{program.name, arguments.scalar, arguments.seed, program.papers};
  put_all(heading(report), out);
  decide(report, arguments.scalar == "float" ? program.groups_float() : program.groups_double(), arguments,
         arguments.exact ? program.exact() : std::vector<ExactDecision>{}, threads, out, progress);
  if (report.propositions.empty()) throw std::invalid_argument("no statement fits " + arguments.text);
  for (const auto& [file, written] : files) {
    file->open() << written(report);
    file->finish();
    file->commit();
  }
  const Counts counts(report.propositions);
  put_all("\n" + (arguments.list ? counted(counts.total(), "statement", "statements") + "\n"
                                 : text_table(report) + "\n" + summary(report)),
          out);
  return counts.unexpected() == 0 ? 0 : 1;
}

}  // namespace detail

inline namespace SYMPOW_THREADS {

/// Decides propositions as the command line says, prints them as they are decided and writes the files that are asked
/// for.
///
///     int main(int argc, char** argv) {
///       return run_program(argc, argv, {"mine", "Decides my statements.", groups<double>, groups<float>});
///     }
///
/// Returns the exit status: 0 all as expected, 1 something is not, 2 wrong arguments or output that cannot be
/// written; then one line on `errors` says which. Every line is flushed, and `errors` names each group before it is
/// decided, but for `--list`.
inline int run_program(int argc, const char* const* argv, const Program& program, std::FILE* out = stdout,
                       std::FILE* errors = stderr) {
  try {
    const Arguments arguments = parse_arguments({argv + (argc > 0 ? 1 : 0), argv + argc}, program);
    if (!arguments.help) return detail::run(program, arguments, sympow::detail::threads_of_program(0), out, errors);
    detail::put_all(detail::usage(program), out);
    return 0;
  } catch (const std::invalid_argument& error) {
    detail::put(program.name + ": " + error.what() + "\n", errors);
    return 2;
  }
}

}  // namespace SYMPOW_THREADS
}  // namespace SYMPOW_NAMESPACE::verify
