// The propositions about forget gates: which there are, and that each comes out as expected.
#include "catch.hpp"
#include "propositions.hpp"

#include <sympow/verify/propositions/groups.hpp>

using namespace sympow;

namespace {

const test::ExpectedIds expected = {
    .statements = "3.L1 3.L2 3.G1 3.M1 3.M2 3.M4", .errata = "3.G2 3.G3 3.G4 3.M3", .controls = "3.L2r 3.G4d 3.G4c"};

}  // namespace

TEST_CASE("the propositions about forget gates come out as expected in both types", "[verify]") {
  const auto seed = GENERATE(1u, 2u, 3u);
  test::require_propositions(verify::forget_gate_propositions<double>, seed, expected);
  test::require_propositions(verify::forget_gate_propositions<float>, seed, expected);
}

TEST_CASE("the propositions about forget gates do not depend on the seed", "[verify][.long]") {
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    test::require_propositions(verify::forget_gate_propositions<double>, seed, expected);
    test::require_propositions(verify::forget_gate_propositions<float>, seed, expected);
  }
}
