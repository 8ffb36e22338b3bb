#include "decide.hpp"

#include <sympow/verify/propositions/all_propositions.hpp>

#include <chrono>
#include <cstdio>

namespace sympow::verify {

// Each text in each type is compiled in a file of its own, for they take a while.
extern template std::vector<PropositionGroup> texts_a_to_c<double>();
extern template std::vector<PropositionGroup> texts_a_to_c<float>();
extern template std::vector<PropositionGroup> text_d<double>();
extern template std::vector<PropositionGroup> text_d<float>();
extern template std::vector<PropositionGroup> text_e<double>();
extern template std::vector<PropositionGroup> text_e<float>();

}  // namespace sympow::verify

using namespace sympow::verify;

template <class Scalar>
std::vector<Proposition> decide(std::uint64_t seed) {
  Ledger ledger;
  const auto start = std::chrono::steady_clock::now();
  const auto groups = proposition_groups<Scalar>();
  int done = 0;
  for (const auto& [name, decide_group] : groups) {
    decide_group(ledger, seed);
    ++done;
    if (std::chrono::steady_clock::now() - start > std::chrono::seconds(1))
      std::fprintf(stderr, "  %d of %zu groups, %s\n", done, groups.size(), name);
  }
  return ledger.propositions();
}

template std::vector<Proposition> decide<double>(std::uint64_t);
template std::vector<Proposition> decide<float>(std::uint64_t);
