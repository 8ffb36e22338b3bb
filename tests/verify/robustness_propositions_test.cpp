// The propositions about Theorem 2 on structured rotations: which there are, and that each comes out as expected.
#include <sympow/verify/propositions/groups.hpp>

#include "catch.hpp"
#include "propositions.hpp"

using namespace sympow;

namespace {

const test::ExpectedIds expected = {.statements = "4.27c 4.27d 4.27e 4.27f 4.26", .errata = "4.27a 4.27b 4.26a 4.26b"};

}  // namespace

TEST_CASE("the propositions about Theorem 2 come out as expected in both types", "[verify]") {
  test::require_propositions(verify::robustness_propositions<double>, 1, expected);
  test::require_propositions(verify::robustness_propositions<float>, 1, expected);
}

TEST_CASE("the propositions about Theorem 2 do not depend on the seed", "[verify][.long]") {
  for (std::uint64_t seed = 1; seed <= 30; ++seed) {
    test::require_propositions(verify::robustness_propositions<double>, seed, expected);
    test::require_propositions(verify::robustness_propositions<float>, seed, expected);
  }
}
