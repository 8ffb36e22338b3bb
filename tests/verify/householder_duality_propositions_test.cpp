// The propositions about Householder chains: which there are, and that each comes out as expected.
#include "catch.hpp"
#include "propositions.hpp"

#include <sympow/verify/propositions/groups.hpp>

using namespace sympow;

namespace {

const test::ExpectedIds expected = {.statements = "3.D5h 3.D5 3.D5v 3.D5n 3.D5g 3.D5l.fix 3.D5t 3.D6 3.D6e 3.D6c.fix",
                                    .errata = "3.D5a 3.D5e 3.D5H 3.D5o 3.D6b 3.D6t",
                                    .controls = "3.D5r 3.D5w 3.D5u 3.D5s",
                                    .documentation = "3.D5c 3.D5l 3.D6c"};

}  // namespace

TEST_CASE("the propositions about Householder chains come out as expected in both types", "[verify]") {
  const auto seed = GENERATE(1u, 2u, 3u);
  test::require_propositions(verify::householder_duality_propositions<double>, seed, expected);
  test::require_propositions(verify::householder_duality_propositions<float>, seed, expected);
}

TEST_CASE("the propositions about Householder chains do not depend on the seed", "[verify][.long]") {
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    test::require_propositions(verify::householder_duality_propositions<double>, seed, expected);
    test::require_propositions(verify::householder_duality_propositions<float>, seed, expected);
  }
}
