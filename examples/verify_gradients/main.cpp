// Checks on this machine what the library says of gradients: derivatives that no paper prints, its gradients against
// them, and what goes wrong where one of their parts is left out. Options are those of verify_propositions.
#include <sympow/verify/program.hpp>

#include "exact_decisions.hpp"
#include "propositions/groups.hpp"
#include "reports/report_files.hpp"

using namespace sympow::verify;

int main(int argc, char** argv) {
  return run_program(argc, argv,
                     {"verify_gradients",
                      "Checks what this library says of gradients on this machine.",
                      gradient_groups<double>,
                      gradient_groups<float>,
                      papers(),
                      {},
                      exact_decisions().empty() ? nullptr : exact_decisions,
                      report_files()});
}
