#include "exact_decisions.hpp"

#include "identities/all_identities.hpp"

using namespace sympow::verify;

std::vector<ExactDecision> exact_decisions() {
  std::vector<ExactDecision> decisions;
#ifdef SYMPOW_HAS_RATIONAL
  const auto decided = [](const ExactStatement& statement) -> std::function<Decision(std::uint64_t)> {
    if (!statement) return {};
    return [statement](std::uint64_t seed) { return decide_exactly(statement, seed); };
  };
  const Identities identities = all_identities();
  for (const Identity& one : identities.all())
    decisions.push_back({one.id, decided(one.statement), decided(one.corrected)});
#endif
  return decisions;
}
