// The propositions about positional biases: which there are, and that each comes out as expected.
#include "catch.hpp"
#include "propositions.hpp"

#include <sympow/verify/propositions/groups.hpp>

using namespace sympow;

namespace {

const test::ExpectedIds expected = {.statements = "AL1 AL4 AL5 AL6", .controls = "AL2 AL3"};

}  // namespace

TEST_CASE("the propositions about positional biases come out as expected in both types", "[verify]") {
  const auto seed = GENERATE(1u, 2u, 3u);
  test::require_propositions(verify::positional_bias_propositions<double>, seed, expected);
  test::require_propositions(verify::positional_bias_propositions<float>, seed, expected);
}

TEST_CASE("the propositions about positional biases do not depend on the seed", "[verify][.long]") {
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    test::require_propositions(verify::positional_bias_propositions<double>, seed, expected);
    test::require_propositions(verify::positional_bias_propositions<float>, seed, expected);
  }
}
