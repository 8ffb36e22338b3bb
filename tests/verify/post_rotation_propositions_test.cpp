// The propositions about rotations after Cayley transforms: which there are, and that each comes out as expected.
#include <sympow/verify/propositions/groups.hpp>

#include "catch.hpp"
#include "propositions.hpp"

using namespace sympow;

namespace {

const test::ExpectedIds expected = {
    .statements = "4.15 4.18 4.18i 4.18e 4.14 4.14i 4.14q 4.19 4.19s 4.19t 4.24 4.23 4.23i 4.23r 4.23s",
    .errata = "4.16 4.17",
    .controls = "4.14n 4.19f 4.19g 4.23m"};

}  // namespace

TEST_CASE("the propositions about rotations after Cayley transforms come out as expected in both types", "[verify]") {
  test::require_propositions(verify::post_rotation_propositions<double>, 1, expected);
  test::require_propositions(verify::post_rotation_propositions<float>, 1, expected);
}

TEST_CASE("the propositions about rotations after Cayley transforms do not depend on the seed", "[verify][.long]") {
  for (std::uint64_t seed = 1; seed <= 30; ++seed) {
    test::require_propositions(verify::post_rotation_propositions<double>, seed, expected);
    test::require_propositions(verify::post_rotation_propositions<float>, seed, expected);
  }
}
