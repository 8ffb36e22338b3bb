// The propositions about the kernel and the tensor product: which there are, and that each comes out as expected.
#include <sympow/verify/propositions/groups.hpp>

#include "catch.hpp"
#include "propositions.hpp"

using namespace sympow;

namespace {

const test::ExpectedIds expected = {.statements = "K1.p1 K1.p2 K1.p3 K1.p4 K1.p6 K2 K3 K4 K5 R1 R2 R3 R4 R5"};

}  // namespace

TEST_CASE("the propositions about the kernel and the tensor product come out as expected in both types", "[verify]") {
  const auto seed = GENERATE(1u, 2u, 3u);
  test::require_propositions(verify::kernel_propositions<double>, seed, expected);
  test::require_propositions(verify::kernel_propositions<float>, seed, expected);
}

TEST_CASE("the propositions about the kernel and the tensor product do not depend on the seed", "[verify][.long]") {
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    test::require_propositions(verify::kernel_propositions<double>, seed, expected);
    test::require_propositions(verify::kernel_propositions<float>, seed, expected);
  }
}
