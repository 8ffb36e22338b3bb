// The propositions about softmax attention: which there are, and that each comes out as expected.
#include "catch.hpp"
#include "propositions.hpp"

#include <sympow/verify/propositions/groups.hpp>

using namespace sympow;

namespace {

const test::ExpectedIds expected = {
    .statements = "3.A1 3.A2 3.A3b.fix 3.A5 3.A6", .errata = "3.A3 3.A4", .controls = "3.A1s 3.A2m"};

}  // namespace

TEST_CASE("the propositions about softmax attention come out as expected in both types", "[verify]") {
  const auto seed = GENERATE(1u, 2u, 3u);
  test::require_propositions(verify::softmax_propositions<double>, seed, expected);
  test::require_propositions(verify::softmax_propositions<float>, seed, expected);
}

TEST_CASE("the propositions about softmax attention do not depend on the seed", "[verify][.long]") {
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    test::require_propositions(verify::softmax_propositions<double>, seed, expected);
    test::require_propositions(verify::softmax_propositions<float>, seed, expected);
  }
}
