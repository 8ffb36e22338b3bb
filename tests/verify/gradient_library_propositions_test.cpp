// The propositions about gradients of every form and score: which there are, and that each comes out as expected.
#include "catch.hpp"
#include "propositions.hpp"

#include <sympow/verify/propositions/groups.hpp>

using namespace sympow;

namespace {

const test::ExpectedIds expected = {
    .statements =
        "grad.A.sums grad.A.squares grad.A.chains grad.A.positions grad.A.p8 grad.A.exponential grad.A.features grad.D "
        "grad.B.sums grad.B.squares grad.B.positions grad.B.p8 grad.B.features grad.C.p1 grad.C.p2 grad.C.p8 grad.W.p1 "
        "grad.W.p2 grad.W.p8 grad.H0 grad.H1 grad.H2 grad.H4 grad.H5 grad.H1.bits grad.H2.bits grad.H4.bits "
        "grad.H5.bits grad.H16.bits",
    .controls = "grad.H16"};

}  // namespace

TEST_CASE("the propositions about gradients of every form and score come out as expected in both types", "[verify]") {
  const auto seed = GENERATE(1u, 2u);
  test::require_propositions(verify::gradient_library_propositions<double>, seed, expected);
  test::require_propositions(verify::gradient_library_propositions<float>, seed, expected);
}

TEST_CASE("the propositions about gradients of every form and score do not depend on the seed", "[verify][.long]") {
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    test::require_propositions(verify::gradient_library_propositions<double>, seed, expected);
    test::require_propositions(verify::gradient_library_propositions<float>, seed, expected);
  }
}
