// Every bound above 1 in units of the row rule says why, over all propositions; and every source can be read.
#include <sympow/verify/place.hpp>
#include <sympow/verify/proposition.hpp>
#include <sympow/verify/propositions/groups.hpp>

#include "catch.hpp"

using namespace sympow;

namespace {

/// All propositions in a type, decided once.
template <class Scalar>
const std::vector<verify::Proposition>& decided() {
  static const verify::Ledger ledger = [] {
    verify::Ledger all;
    for (const auto& [name, decide] : verify::proposition_groups<Scalar>()) decide(all, 1);
    return all;
  }();
  return ledger.propositions();
}

/// Whether a bound needs no reason or has one.
bool is_explained(double bound, const std::string& unit, const std::string& reason) {
  return !(unit == "row rule" && bound > 1) || !reason.empty();
}

}  // namespace

TEST_CASE("every bound above 1 in units of the row rule has a reason", "[verify]") {
  REQUIRE(!is_explained(2, "row rule", ""));
  for (const auto& all : {decided<double>(), decided<float>()}) {
    int explained = 0;
    for (const verify::Proposition& p : all) {
      CAPTURE(p.id, p.bound, p.corrected_bound, p.statement, p.correction);
      REQUIRE(is_explained(p.bound, p.unit, p.reason));
      REQUIRE(is_explained(p.corrected_bound, p.corrected_unit, p.corrected_reason));
      explained += !p.reason.empty() || !p.corrected_reason.empty();
    }
    REQUIRE(explained > 30);
  }
}

TEST_CASE("every source names a paper and a section, or that it is an extension or a diagnosis", "[verify]") {
  for (const verify::Proposition& p : decided<double>()) {
    CAPTURE(p.id, p.source);
    const verify::Source source = verify::parse_source(p.source);
    if (source.places.empty()) {
      REQUIRE((source.note == "extension" || source.note == "diagnosis"));
      continue;
    }
    for (const verify::Place& place : source.places) {
      REQUIRE(verify::find_paper(verify::papers(), place.paper) != nullptr);
      REQUIRE((!place.section.empty() || p.source.size() == 1));
    }
  }
}
