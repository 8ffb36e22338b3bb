// The propositions about structured rotations: which there are, and that each comes out as expected.
#include <sympow/verify/propositions/groups.hpp>

#include "catch.hpp"
#include "propositions.hpp"

using namespace sympow;

namespace {

const test::ExpectedIds expected = {.statements = "4.10 4.11 4.11s 4.12 4.13 4.12a 4.12b 4.12c 4.12d 4.12e",
                                    .controls = "4.12m"};

}  // namespace

TEST_CASE("the propositions about structured rotations come out as expected in both types", "[verify]") {
  test::require_propositions(verify::structured_rotation_propositions<double>, 1, expected);
  test::require_propositions(verify::structured_rotation_propositions<float>, 1, expected);
}

TEST_CASE("the propositions about structured rotations do not depend on the seed", "[verify][.long]") {
  for (std::uint64_t seed = 1; seed <= 30; ++seed) {
    test::require_propositions(verify::structured_rotation_propositions<double>, seed, expected);
    test::require_propositions(verify::structured_rotation_propositions<float>, seed, expected);
  }
}
