// The propositions about gradients at the ends of the type: which there are, and that each comes out as expected.
#include "catch.hpp"
#include "propositions.hpp"

#include <sympow/verify/propositions/groups.hpp>

using namespace sympow;

namespace {

const test::ExpectedIds expected = {
    .statements = "grad.E1 grad.E2 grad.E3 grad.E4 grad.E5 grad.E6 grad.E7 grad.F7.long grad.F9.long grad.F11.long",
    .controls = "grad.E1.plain grad.E2.plain grad.E4.plain grad.G4"};

}  // namespace

TEST_CASE("the propositions about gradients at the ends of the type come out as expected in both types", "[verify]") {
  const auto seed = GENERATE(1u, 2u);
  test::require_propositions(verify::gradient_extreme_propositions<double>, seed, expected);
  test::require_propositions(verify::gradient_extreme_propositions<float>, seed, expected);
}

TEST_CASE("the propositions about gradients at the ends of the type do not depend on the seed", "[verify][.long]") {
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    test::require_propositions(verify::gradient_extreme_propositions<double>, seed, expected);
    test::require_propositions(verify::gradient_extreme_propositions<float>, seed, expected);
  }
}
