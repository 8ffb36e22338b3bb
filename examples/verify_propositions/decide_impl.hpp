// The body of decide.
#pragma once

#include <sympow/verify/propositions/all_propositions.hpp>

#include <chrono>
#include <cstdio>

#include "decide.hpp"

template <class Scalar>
std::vector<sympow::verify::Proposition> decide(std::uint64_t seed) {
  sympow::verify::Ledger ledger;
  const auto start = std::chrono::steady_clock::now();
  const auto& groups = sympow::verify::proposition_groups<Scalar>();
  int done = 0;
  for (const auto& [name, decide_group] : groups) {
    decide_group(ledger, seed);
    ++done;
    if (std::chrono::steady_clock::now() - start > std::chrono::seconds(1))
      std::fprintf(stderr, "  %d of %zu groups, %s\n", done, groups.size(), name);
  }
  return ledger.propositions();
}
