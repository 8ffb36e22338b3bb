// The propositions about gradients of zeros: which there are, and that each comes out as expected.
#include "catch.hpp"
#include "propositions.hpp"

#include <sympow/verify/propositions/groups.hpp>

using namespace sympow;

namespace {

const test::ExpectedIds expected = {.statements = "grad.G1 grad.G1.deep grad.G2 grad.G2.deep grad.G5 grad.G7 grad.G8",
                                    .controls = "grad.G6 grad.G9 grad.H9"};

}  // namespace

TEST_CASE("the propositions about gradients of zeros come out as expected in both types", "[verify]") {
  const auto seed = GENERATE(1u, 2u, 3u);
  test::require_propositions(verify::gradient_limit_propositions<double>, seed, expected);
  test::require_propositions(verify::gradient_limit_propositions<float>, seed, expected);
}

TEST_CASE("the propositions about gradients of zeros do not depend on the seed", "[verify][.long]") {
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    test::require_propositions(verify::gradient_limit_propositions<double>, seed, expected);
    test::require_propositions(verify::gradient_limit_propositions<float>, seed, expected);
  }
}
