// The propositions about joint planes: which there are, and that each comes out as expected.
#include <sympow/verify/propositions/groups.hpp>

#include "catch.hpp"
#include "propositions.hpp"

using namespace sympow;

namespace {

const test::ExpectedIds expected = {.statements =
                                        "J.1 J.2 J.3 J.4 J.5 J.6 J.7 J.8 J.9 J.10 J.11 J.12 J.13 J.14 J.15 J.16 J.17 "
                                        "J.18 J.null J.newton J.guard J.near J.norm "
                                        "4.1 4.3 4.3o 4.4 4.5 4.7 4.8 4.9 4.9u",
                                    .errata = "4.3m 4.4p 4.5n 4.8b 4.8r",
                                    .controls = "J.guard0 J.schur J.unnorm J.sign J.tol+ J.tol0 J.eigh J.noncomm"};

}  // namespace

TEST_CASE("the propositions about joint planes come out as expected in both types", "[verify]") {
  test::require_propositions(verify::joint_block_propositions<double>, 1, expected);
  test::require_propositions(verify::joint_block_propositions<float>, 1, expected);
}

TEST_CASE("the propositions about joint planes do not depend on the seed", "[verify][.long]") {
  for (std::uint64_t seed = 1; seed <= 30; ++seed) {
    test::require_propositions(verify::joint_block_propositions<double>, seed, expected);
    test::require_propositions(verify::joint_block_propositions<float>, seed, expected);
  }
}
