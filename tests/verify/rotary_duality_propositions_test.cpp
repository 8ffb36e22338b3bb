// The propositions about the complex gate and RoPE: which there are, and that each comes out as expected.
#include "catch.hpp"
#include "propositions.hpp"

#include <sympow/verify/propositions/groups.hpp>

using namespace sympow;

namespace {

const test::ExpectedIds expected = {.statements = "3.D4 3.D4cb.fix 3.D4r 3.D4k 3.D4i 3.D4y 3.D4l 3.D4z",
                                    .errata = "3.D4p 3.D4c 3.D4x 3.D4b 3.D4o 3.D4m"};

}  // namespace

TEST_CASE("the propositions about the complex gate and RoPE come out as expected in both types", "[verify]") {
  const auto seed = GENERATE(1u, 2u, 3u);
  test::require_propositions(verify::rotary_duality_propositions<double>, seed, expected);
  test::require_propositions(verify::rotary_duality_propositions<float>, seed, expected);
}

TEST_CASE("the propositions about the complex gate and RoPE do not depend on the seed", "[verify][.long]") {
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    test::require_propositions(verify::rotary_duality_propositions<double>, seed, expected);
    test::require_propositions(verify::rotary_duality_propositions<float>, seed, expected);
  }
}
