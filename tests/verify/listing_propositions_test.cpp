// The propositions about the listings: which there are, and that each comes out as expected.
#include <sympow/verify/propositions/groups.hpp>

#include "catch.hpp"
#include "propositions.hpp"

using namespace sympow;

namespace {

const test::ExpectedIds expected = {.statements = "X1.fix X2a X2a.fix X2f X3.fix X4 X5 X5m X6",
                                    .errata = "X2d",
                                    .controls = "X1z X2a64 X2b.0.001 X2b.1e-06 X2c X2e X2g X6w",
                                    .documentation = "X0 X1 X3 X4t X5z"};

}  // namespace

TEST_CASE("the propositions about the listings come out as expected in both types", "[verify]") {
  const auto seed = GENERATE(1u, 2u, 3u);
  test::require_propositions(verify::listing_propositions<double>, seed, expected);
  test::require_propositions(verify::listing_propositions<float>, seed, expected);
}

TEST_CASE("the propositions about the listings do not depend on the seed", "[verify][.long]") {
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    test::require_propositions(verify::listing_propositions<double>, seed, expected);
    test::require_propositions(verify::listing_propositions<float>, seed, expected);
  }
}
