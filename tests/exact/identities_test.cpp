// Every identity over the rational numbers is one of a proposition, and comes out as that is expected.
#include <sympow/verify/report_table.hpp>
#include "exact_decisions.hpp"
#include "propositions/groups.hpp"

#include <algorithm>
#include <iterator>
#include <map>

#include "catch.hpp"

using namespace sympow::verify;

namespace {

// Decides every identity once from each seed, by 20 draws.
void check_identities(std::initializer_list<std::uint64_t> seeds) {
  std::map<std::string, Proposition> known;
  std::vector<PropositionGroup> groups = proposition_groups<double>();
  std::ranges::copy(gradient_groups<double>(), std::back_inserter(groups));
  for (const PropositionGroup& group : groups) {
    const std::string name = group.name;
    if (name.find("every form") != std::string::npos || name.find("ends of the type") != std::string::npos)
      continue;  // no identity, and long
    Ledger ledger;
    group.decide(ledger, 1);
    for (const Proposition& p : ledger.propositions()) known[p.id] = p;
  }
  const std::vector<ExactDecision> all = exact_decisions();
  Counts counts;
  for (const ExactDecision& one : all) {
    CAPTURE(one.id);
    REQUIRE(known.count(one.id) == 1);
    Proposition p = known[one.id];
    REQUIRE(!p.decision.is_made());  // none twice
    REQUIRE((p.kind == Kind::erratum) == static_cast<bool>(one.corrected));
    for (const std::uint64_t seed : seeds) {
      p.decision = one.statement(seed);
      if (one.corrected) p.corrected.decision = one.corrected(seed);
      CAPTURE(seed, p.decision.counterexample, p.corrected.decision.counterexample);
      REQUIRE(p.as_expected());
      REQUIRE(p.decision.refuted == (p.kind != Kind::statement));
      REQUIRE(p.decision.integers <= 6);
      REQUIRE((p.decision.residual == "0") == (p.kind == Kind::statement));
      // At least two sizes and 20 seeds, or a statement about one case.
      const std::string& domain = p.kind == Kind::erratum ? p.corrected.decision.domain : p.decision.domain;
      REQUIRE((p.kind == Kind::control || domain.find("seeds") != std::string::npos ||
               domain.find("no other inputs") != std::string::npos));
    }
    known[one.id] = p;
    counts.add(p);
  }
  REQUIRE(counts.unexpected() == 0);
  REQUIRE(counts.decided[0] + counts.decided[1] == static_cast<int>(all.size()));
  REQUIRE(counts.decided[1] > 0);
}

}  // namespace

TEST_CASE("every identity is decided exactly and as its proposition is expected", "[exact]") { check_identities({1}); }

TEST_CASE("three other seeds decide every identity alike", "[exact][.long]") { check_identities({2, 3, 4}); }
