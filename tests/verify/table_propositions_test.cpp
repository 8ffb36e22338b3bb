// The propositions about the tables: which there are, and that each comes out as expected.
#include <sympow/verify/propositions/groups.hpp>

#include "catch.hpp"
#include "propositions.hpp"

using namespace sympow;

namespace {

const test::ExpectedIds expected = {
    .statements =
        "N.tp2 N.sy2 N.sv2 N.tp4 N.sy4 N.tp6 N.tpf6 N.sy6 N.sv6 N.tp8 N.sy8 N.sv8 N.sv4.fix "
        "N.lt.small N.ltr.small N.lt.medium N.lt.large N.lt.xl N.ltr.xl N.ov1 N.ov2 N.80",
    .errata = "N.tpf2 N.tpf4 N.sv4 N.tpf8 N.ltr.medium N.ltr.large N.w.medium N.ov3",
    .controls = "N.mib.tp2 N.mib.sy2 N.mib.tp4 N.mib.sy4 N.mib.sy6 N.mib.sy8",
    .documentation = "N.ov4"};

}  // namespace

TEST_CASE("the propositions about the tables come out as expected in both types", "[verify]") {
  const auto seed = GENERATE(1u, 2u);
  test::require_propositions(verify::table_propositions<double>, seed, expected);
  test::require_propositions(verify::table_propositions<float>, seed, expected);
}
