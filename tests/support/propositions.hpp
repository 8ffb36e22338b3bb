// What a header of propositions must deliver: exactly these ids, of these kinds, each decided as expected.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <sstream>
#include <string>
#include <vector>

#include <sympow/verify/proposition.hpp>

#include "catch.hpp"

namespace sympow::test {

/// Ids by kind, separated by spaces.
struct ExpectedIds {
  std::string statements, errata = {}, controls = {}, documentation = {};
};

/// Runs `propositions(ledger, seed)` and requires the ids and kinds and that every verdict is the expected one. Returns
/// them.
template <class Propositions>
std::vector<verify::Proposition> require_propositions(const Propositions& propositions, std::uint64_t seed,
                                                      const ExpectedIds& expected) {
  using verify::Kind;
  CAPTURE(seed);
  verify::Ledger ledger;
  propositions(ledger, seed);

  const auto sorted = [](std::vector<std::string> ids) {
    std::ranges::sort(ids);
    return ids;
  };
  const auto split = [](const std::string& text) {
    std::istringstream in(text);
    std::vector<std::string> ids;
    for (std::string id; in >> id;) ids.push_back(id);
    return ids;
  };
  const auto of_kind = [&](Kind kind) {
    std::vector<std::string> ids;
    for (const auto& p : ledger.propositions())
      if (p.kind == kind) ids.push_back(p.id);
    return ids;
  };
  REQUIRE(sorted(of_kind(Kind::statement)) == sorted(split(expected.statements)));
  REQUIRE(sorted(of_kind(Kind::erratum)) == sorted(split(expected.errata)));
  REQUIRE(sorted(of_kind(Kind::control)) == sorted(split(expected.controls)));
  REQUIRE(sorted(of_kind(Kind::documentation)) == sorted(split(expected.documentation)));

  for (const auto& p : ledger.propositions()) {
    CAPTURE(p.id, p.statement, p.residual, p.bound, p.corrected.residual, p.corrected.bound);
    REQUIRE(p.as_expected());
    REQUIRE(!p.statement.empty());
    REQUIRE(!p.source.empty());
    REQUIRE(p.corrected.statement.empty() == (p.kind == Kind::statement || p.kind == Kind::control));
    REQUIRE(std::isfinite(p.bound));
  }
  return ledger.propositions();
}

}  // namespace sympow::test
