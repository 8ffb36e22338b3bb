// The propositions about gradients through states: which there are, and that each comes out as expected.
#include "catch.hpp"
#include "propositions.hpp"

#include <sympow/verify/propositions/groups.hpp>

using namespace sympow;

namespace {

const test::ExpectedIds expected = {
    .statements =
        "grad.B.gates grad.B.channels grad.B.rotary grad.B.householder grad.S1 grad.S3 grad.S4 grad.S5 grad.O5",
    .controls = "grad.S2 grad.X1 grad.X2 grad.X3 grad.X4 grad.X5 grad.X6 grad.X7 grad.X8 grad.X9 grad.X10"};

}  // namespace

TEST_CASE("the propositions about gradients through states come out as expected in both types", "[verify]") {
  const auto seed = GENERATE(1u, 2u, 3u);
  test::require_propositions(verify::gradient_state_propositions<double>, seed, expected);
  test::require_propositions(verify::gradient_state_propositions<float>, seed, expected);
}

TEST_CASE("the propositions about gradients through states do not depend on the seed", "[verify][.long]") {
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    test::require_propositions(verify::gradient_state_propositions<double>, seed, expected);
    test::require_propositions(verify::gradient_state_propositions<float>, seed, expected);
  }
}
