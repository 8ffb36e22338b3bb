// The propositions about the induced map: which there are, and that each comes out as expected.
#include <sympow/verify/propositions/groups.hpp>

#include "catch.hpp"
#include "propositions.hpp"

using namespace sympow;

namespace {

const test::ExpectedIds expected = {
    .statements = "P2a P2b P2c P2d P2e P2f P2g P2h P2i P2j.fix P2l P2n", .errata = "P2j P2j'", .controls = "P2k P2m"};

}  // namespace

TEST_CASE("the propositions about the induced map come out as expected in both types", "[verify]") {
  const auto seed = GENERATE(1u, 2u, 3u);
  test::require_propositions(verify::induced_propositions<double>, seed, expected);
  test::require_propositions(verify::induced_propositions<float>, seed, expected);
}

TEST_CASE("the propositions about the induced map do not depend on the seed", "[verify][.long]") {
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    test::require_propositions(verify::induced_propositions<double>, seed, expected);
    test::require_propositions(verify::induced_propositions<float>, seed, expected);
  }
}
