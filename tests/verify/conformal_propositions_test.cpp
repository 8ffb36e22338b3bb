// The propositions about conformal-sympow: which there are, and that each comes out as expected.
#include "catch.hpp"
#include "propositions.hpp"

#include <sympow/verify/propositions/groups.hpp>

using namespace sympow;

namespace {

const test::ExpectedIds expected = {.statements = "C1.fix.p2 C1.fix.p4 C3.p2 C3s.fix.p2 C3.p3 C3s.fix.p3 C4",
                                    .errata = "C1.p2 C2.p2 C1.p4 C2.p4",
                                    .controls = "C3s.p2 C3r.p2 C3t.p2 C3s.p3 C3r.p3 C3t.p3"};

}  // namespace

TEST_CASE("the propositions about conformal-sympow come out as expected in both types", "[verify]") {
  const auto seed = GENERATE(1u, 2u, 3u);
  test::require_propositions(verify::conformal_propositions<double>, seed, expected);
  test::require_propositions(verify::conformal_propositions<float>, seed, expected);
}

TEST_CASE("the propositions about conformal-sympow do not depend on the seed", "[verify][.long]") {
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    test::require_propositions(verify::conformal_propositions<double>, seed, expected);
    test::require_propositions(verify::conformal_propositions<float>, seed, expected);
  }
}
