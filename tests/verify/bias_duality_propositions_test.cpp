// The propositions about gates that are biases: which there are, and that each comes out as expected.
#include "catch.hpp"
#include "propositions.hpp"

#include <sympow/verify/propositions/groups.hpp>

using namespace sympow;

namespace {

const test::ExpectedIds expected = {.statements = "3.D1 3.D2 3.D2c 3.D3v.fix 3.D3m 3.D3M 3.D3w.fix",
                                    .errata = "3.D2s 3.D2t 3.D3x 3.D3y 3.D3b 3.D3t",
                                    .controls = "3.D3g 3.D3u",
                                    .documentation = "3.C0 3.D2n 3.D3v 3.D3n 3.D3w 3.D3w1"};

}  // namespace

TEST_CASE("the propositions about gates that are biases come out as expected in both types", "[verify]") {
  const auto seed = GENERATE(1u, 2u, 3u);
  test::require_propositions(verify::bias_duality_propositions<double>, seed, expected);
  test::require_propositions(verify::bias_duality_propositions<float>, seed, expected);
}

TEST_CASE("the propositions about gates that are biases do not depend on the seed", "[verify][.long]") {
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    test::require_propositions(verify::bias_duality_propositions<double>, seed, expected);
    test::require_propositions(verify::bias_duality_propositions<float>, seed, expected);
  }
}
