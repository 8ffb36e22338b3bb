// The propositions about distributions: which there are, and that each comes out as expected.
#include "catch.hpp"
#include "propositions.hpp"

#include <sympow/verify/propositions/groups.hpp>

using namespace sympow;

namespace {

const test::ExpectedIds expected = {.statements = "D7 D1 D2", .errata = "D3 D4", .controls = "D5 D6"};

}  // namespace

TEST_CASE("the propositions about distributions come out as expected in both types", "[verify]") {
  const auto seed = GENERATE(1u, 2u, 3u);
  test::require_propositions(verify::distribution_propositions<double>, seed, expected);
  test::require_propositions(verify::distribution_propositions<float>, seed, expected);
}

TEST_CASE("the propositions about distributions do not depend on the seed", "[verify][.long]") {
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    test::require_propositions(verify::distribution_propositions<double>, seed, expected);
    test::require_propositions(verify::distribution_propositions<float>, seed, expected);
  }
}
