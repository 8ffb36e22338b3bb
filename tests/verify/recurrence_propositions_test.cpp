// The propositions about recurrences: which there are, and that each comes out as expected.
#include "catch.hpp"
#include "propositions.hpp"

#include <sympow/verify/propositions/groups.hpp>

using namespace sympow;

namespace {

const test::ExpectedIds expected = {
    .statements = "F1.p2 F1.p4 F2 F3 F4 F5 P3.p2 P3.p4 P1.p2 P1S.p2 P1.p4 P1S.p4 P1g P1b", .errata = "G1"};

}  // namespace

TEST_CASE("the propositions about recurrences come out as expected in both types", "[verify]") {
  const auto seed = GENERATE(1u, 2u, 3u);
  test::require_propositions(verify::recurrence_propositions<double>, seed, expected);
  test::require_propositions(verify::recurrence_propositions<float>, seed, expected);
}

TEST_CASE("the propositions about recurrences do not depend on the seed", "[verify][.long]") {
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    test::require_propositions(verify::recurrence_propositions<double>, seed, expected);
    test::require_propositions(verify::recurrence_propositions<float>, seed, expected);
  }
}
