// Checks every statement of the source papers on this machine and says which hold and which are misprinted.
//
//     verify_propositions [--filter ID] [--words "WORDS"] [--paper LETTER] [--verdict VERDICT] [--list] [--explain]
//                         [--exact] [--scalar float|double] [--seed N]
//                         [--markdown FILE] [--latex FILE] [--json FILE] [--figure FILE.svg]
//     verify_propositions --dualities [--scalar float|double] [--seed N]
//
// One line a statement as soon as it is decided: the verdict, its id, the residual and the bound that rounding sets,
// where it stands; at the end a table by paper and section. `--exact` decides identities of rational functions over the
// rational numbers as well. `--dualities` prints the linear systems beside their softmax duals instead. Exit status: 0
// all as expected, 1 something is not, 2 bad options or output that cannot be written.
#include "exact_decisions.hpp"
#include "print_dualities.hpp"

#include <filesystem>

#include <sympow/verify/program.hpp>
#include "propositions/groups.hpp"
#include "reports/report_files.hpp"

using namespace sympow::verify;

int main(int argc, char** argv) {
  return run_program(
      argc, argv,
      {argc > 0 ? std::filesystem::path(argv[0]).filename().string() : "verify_propositions",
       "Checks every statement of the source papers on this machine.",
       proposition_groups<double>,
       proposition_groups<float>,
       papers(),
       {{"--dualities", "linear systems beside their softmax duals; with --scalar and --seed alone", print_dualities}},
       exact_decisions().empty() ? nullptr : exact_decisions,
       report_files()});
}
