// The propositions about the symmetric tensors: which there are, and that each comes out as expected.
#include <sympow/verify/propositions/groups.hpp>

#include "catch.hpp"
#include "propositions.hpp"

using namespace sympow;

namespace {

const test::ExpectedIds expected = {
    .statements = "S1.fix S2 S3 S4 S5 S6 S7 S8 S9 S10.p1 S10.p2 S10.p3 S10.p4 S10.p5 S10.p6 S12 S13.fix S15",
    .errata = "S1 S11 S13 S14"};

}  // namespace

TEST_CASE("the propositions about the symmetric tensors come out as expected in both types", "[verify]") {
  const auto seed = GENERATE(1u, 2u, 3u);
  test::require_propositions(verify::symmetric_tensor_propositions<double>, seed, expected);
  test::require_propositions(verify::symmetric_tensor_propositions<float>, seed, expected);
}

TEST_CASE("the propositions about the symmetric tensors do not depend on the seed", "[verify][.long]") {
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    test::require_propositions(verify::symmetric_tensor_propositions<double>, seed, expected);
    test::require_propositions(verify::symmetric_tensor_propositions<float>, seed, expected);
  }
}
