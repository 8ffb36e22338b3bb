// The propositions about rotations and rotary positions: which there are, and that each comes out as expected.
#include "catch.hpp"
#include "propositions.hpp"

#include <sympow/verify/propositions/groups.hpp>

using namespace sympow;

namespace {

const test::ExpectedIds expected = {
    .statements = "T1 T1n T2 T3 T4 T5.fix T6.fix T7 T8 T9 L1 L2.fix L3.fix.p2 L3.fix.p4 L3s",
    .errata = "T5 T6 L2 L3.p2 L3.p4",
    .controls = "L1f L1g"};

}  // namespace

TEST_CASE("the propositions about rotations and rotary positions come out as expected in both types", "[verify]") {
  const auto seed = GENERATE(1u, 2u, 3u);
  test::require_propositions(verify::rotation_propositions<double>, seed, expected);
  test::require_propositions(verify::rotation_propositions<float>, seed, expected);
}

TEST_CASE("the propositions about rotations and rotary positions do not depend on the seed", "[verify][.long]") {
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    test::require_propositions(verify::rotation_propositions<double>, seed, expected);
    test::require_propositions(verify::rotation_propositions<float>, seed, expected);
  }
}
