// The propositions about gradients of gates and angles: which there are, and that each comes out as expected.
#include "catch.hpp"
#include "propositions.hpp"

#include <sympow/verify/propositions/groups.hpp>

using namespace sympow;

namespace {

const test::ExpectedIds expected = {
    .statements = "grad.F1 grad.F2 grad.F3 grad.F4 grad.F6 grad.F7 grad.F9 grad.F12 grad.O3",
    .controls = "grad.F5 grad.F8 grad.F10 grad.F11"};

}  // namespace

TEST_CASE("the propositions about gradients of gates and angles come out as expected in both types", "[verify]") {
  const auto seed = GENERATE(1u, 2u, 3u);
  test::require_propositions(verify::gradient_flow_propositions<double>, seed, expected);
  test::require_propositions(verify::gradient_flow_propositions<float>, seed, expected);
}

TEST_CASE("the propositions about gradients of gates and angles do not depend on the seed", "[verify][.long]") {
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    test::require_propositions(verify::gradient_flow_propositions<double>, seed, expected);
    test::require_propositions(verify::gradient_flow_propositions<float>, seed, expected);
  }
}
