// The propositions about random features: which there are, and that each comes out as expected.
#include <sympow/verify/propositions/groups.hpp>

#include "catch.hpp"
#include "propositions.hpp"

using namespace sympow;

namespace {

const test::ExpectedIds expected = {.statements = "4.P3 4.P4 4.P5 4.P6 4.P6n 4.P7 4.P8 4.P11 4.P11p",
                                    .errata = "4.P1 4.P2 4.P9",
                                    .controls = "4.P6m 4.P10"};

}  // namespace

TEST_CASE("the propositions about random features come out as expected in both types", "[verify]") {
  test::require_propositions(verify::random_feature_propositions<double>, 1, expected);
  test::require_propositions(verify::random_feature_propositions<float>, 1, expected);
}

TEST_CASE("the propositions about random features do not depend on the seed", "[verify][.long]") {
  for (std::uint64_t seed = 1; seed <= 30; ++seed) {
    test::require_propositions(verify::random_feature_propositions<double>, seed, expected);
    test::require_propositions(verify::random_feature_propositions<float>, seed, expected);
  }
}
