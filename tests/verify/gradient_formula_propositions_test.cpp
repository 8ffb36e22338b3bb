// The propositions about derivatives of formulas: which there are, and that each comes out as expected.
#include "catch.hpp"
#include "propositions.hpp"

#include <sympow/verify/propositions/groups.hpp>

using namespace sympow;

namespace {

const test::ExpectedIds expected = {
    .statements =
        "grad.V.p2 grad.V.p3 grad.V.p4 grad.V.p8 grad.V.count grad.V.euler grad.V.norm grad.L.p2 grad.L.p3 grad.L.p4 "
        "grad.L.count.p2 grad.L.count.p3 grad.L.count.p4 grad.O1 grad.O2 grad.O4"};

}  // namespace

TEST_CASE("the propositions about derivatives of formulas come out as expected in both types", "[verify]") {
  const auto seed = GENERATE(1u, 2u, 3u);
  test::require_propositions(verify::gradient_formula_propositions<double>, seed, expected);
  test::require_propositions(verify::gradient_formula_propositions<float>, seed, expected);
}

TEST_CASE("the propositions about derivatives of formulas do not depend on the seed", "[verify][.long]") {
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    test::require_propositions(verify::gradient_formula_propositions<double>, seed, expected);
    test::require_propositions(verify::gradient_formula_propositions<float>, seed, expected);
  }
}
