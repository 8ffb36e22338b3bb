// The propositions about perturbed rotations: which there are, and that each comes out as expected.
#include <sympow/verify/propositions/groups.hpp>

#include "catch.hpp"
#include "propositions.hpp"

using namespace sympow;

namespace {

const test::ExpectedIds expected = {
    .statements = "4.29 4.29o 4.30 4.31 4.31a 4.32 4.32s", .errata = "4.29r 4.33", .controls = "4.33o"};

}  // namespace

TEST_CASE("the propositions about perturbed rotations come out as expected in both types", "[verify]") {
  test::require_propositions(verify::perturbation_propositions<double>, 1, expected);
  test::require_propositions(verify::perturbation_propositions<float>, 1, expected);
}

TEST_CASE("the propositions about perturbed rotations do not depend on the seed", "[verify][.long]") {
  for (std::uint64_t seed = 1; seed <= 30; ++seed) {
    test::require_propositions(verify::perturbation_propositions<double>, seed, expected);
    test::require_propositions(verify::perturbation_propositions<float>, seed, expected);
  }
}
