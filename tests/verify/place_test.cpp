// Sources taken apart: paper, section, equation.
#include <sympow/verify/bound.hpp>
#include <sympow/verify/place.hpp>
#include <sympow/verify/report_table.hpp>

#include "catch.hpp"

using namespace sympow::verify;

namespace {

std::vector<Place> places(const std::string& text) { return parse_source(text).places; }
std::string note(const std::string& text) { return parse_source(text).note; }

}  // namespace

TEST_CASE("a source has one place or several, and a letter holds until the next", "[verify]") {
  using P = std::vector<Place>;
  REQUIRE(places("C §4.1") == P{{"C", "§4.1", ""}});
  REQUIRE(places("A §2, A.1.1; C §4.2") == P{{"A", "§2", ""}, {"A", "A.1.1", ""}, {"C", "§4.2", ""}});
  REQUIRE(places("A A.1.1; B §1; C §1") == P{{"A", "A.1.1", ""}, {"B", "§1", ""}, {"C", "§1", ""}});
  REQUIRE(places("D §Linear Attention; §F.1") == P{{"D", "Linear Attention", ""}, {"D", "§F.1", ""}});
  REQUIRE(places("E §3, abstract") == P{{"E", "§3", ""}, {"E", "abstract", ""}});
  REQUIRE(places("E (12); §1, §2.2") == P{{"E", "F.2", "(12)"}, {"E", "§1", ""}, {"E", "§2.2", ""}});
  REQUIRE(places("C, introduction") == P{{"C", "introduction", ""}});
  REQUIRE(places("C") == P{{"C", "", ""}});
  REQUIRE(places("").empty());
}

TEST_CASE("what is smaller than a section belongs to the place before it", "[verify]") {
  using P = std::vector<Place>;
  REQUIRE(places("D §3, box") == P{{"D", "§3", "box"}});
  REQUIRE(places("D §4, box, listing") == P{{"D", "§4", "box, listing"}});
  REQUIRE(places("C §2, listing 2") == P{{"C", "§2", "listing 2"}});
  REQUIRE(places("A A.3, step 2; B §4") == P{{"A", "A.3", "step 2"}, {"B", "§4", ""}});
  REQUIRE(places("A A.3, base case") == P{{"A", "A.3", "base case"}});
  REQUIRE(places("E F.5, after (33); F.6") == P{{"E", "F.5", "after (33)"}, {"E", "F.6", ""}});
  REQUIRE(places("E F.2, display before (13)") == P{{"E", "F.2", "display before (13)"}});
  REQUIRE(places("F §2 eq. (3)") == P{{"F", "§2", "eq. (3)"}});
  REQUIRE(places("F §2, Theorem 7") == P{{"F", "§2", "Theorem 7"}});
}

TEST_CASE("where a source names no section, the paper's landmarks do", "[verify]") {
  using P = std::vector<Place>;
  REQUIRE(places("A Proposition 3; B §1.1") == P{{"A", "A.1.2", "Proposition 3"}, {"B", "§1.1", ""}});
  REQUIRE(places("E Lemma 1, (3); §2.1") == P{{"E", "F.1", "Lemma 1, (3)"}, {"E", "§2.1", ""}});
  REQUIRE(places("E (18), Lemma 3; §2.3") == P{{"E", "F.3", "(18), Lemma 3"}, {"E", "§2.3", ""}});
  REQUIRE(places("E Theorem 2 (27); §1") == P{{"E", "F.5", "Theorem 2 (27)"}, {"E", "§1", ""}});
  REQUIRE(places("E (1), (3)") == P{{"E", "F", "(1), (3)"}});
  REQUIRE(places("D log-space, §4") == P{{"D", "Forget Gate as Positional Embedding", "log-space"}, {"D", "§4", ""}});
  REQUIRE(places("D Softmax Attention") == P{{"D", "Softmax Attention", ""}});
  REQUIRE(places("D Linear Attention, §1") == P{{"D", "Linear Attention", ""}, {"D", "§1", ""}});
  REQUIRE(parse_source("G Lemma 1", {{"G", "", "", "", "", "", {{"§5", "Lemma 1"}}}}).first().section == "§5");
}

TEST_CASE("a note says how a statement relates to its place", "[verify]") {
  REQUIRE(note("correction of D §3") == "correction");
  REQUIRE(places("correction of D §3, listing") == std::vector<Place>{{"D", "§3", "listing"}});
  REQUIRE(places("extension of A Proposition 2").front() == Place{"A", "§3.3", "Proposition 2"});
  REQUIRE(note("(extension)") == "extension");
  REQUIRE(places("(extension)").empty());
  REQUIRE(note("E (26) (extension)") == "extension");
  REQUIRE(places("E (26) (extension)") == std::vector<Place>{{"E", "F.5", "(26)"}});
  REQUIRE(note("C §4.1 (printed without the bars)") == "printed without the bars");
  REQUIRE(note("E (26)").empty());
  REQUIRE(note("bridge that A A.3 leaves out") == "bridge that A A.3 leaves out");
  REQUIRE(places("bridge that A A.3 leaves out") == std::vector<Place>{{"A", "A.3", ""}});
  REQUIRE(places("written by hand").front().section == "written by hand");  // nothing that we know
}

TEST_CASE("sections are in a reader's order", "[verify]") {
  const std::vector<std::string> ordered = {"introduction", "§1",    "§2",  "§2.1", "§3",  "§10",
                                            "A.1.1",        "A.1.2", "A.3", "F",    "F.5", ""};
  for (std::size_t i = 0; i < ordered.size(); ++i)
    for (std::size_t j = 0; j < ordered.size(); ++j) {
      CAPTURE(ordered[i], ordered[j]);
      REQUIRE(sympow::verify::detail::section_before(ordered[i], ordered[j]) == (i < j));
    }
}

TEST_CASE("the unit is split off the end of a statement, and put back", "[verify]") {
  for (const auto& [text, statement, unit] : std::vector<std::array<std::string, 3>>{
           {"a = b, in units of the row rule", "a = b", "row rule"},
           {"a = b; in units of max |V|", "a = b", "max|V|"},
           {"a = b, relative to (Σ|v_i w_i|)^p", "a = b", "relative to (Σ|v_i w_i|)^p"},
           {"a = b, relative", "a = b", "relative"},
           {"a ≤ b; ratio", "a ≤ b", "ratio"},
           {"1 in units of 2 bytes", "1 in units of 2 bytes", ""},
           {"a, in units of x; and more", "a, in units of x; and more", ""},
           {"", "", ""}}) {
    CAPTURE(text);
    const Measured found = split_unit(text);
    REQUIRE(found.statement == statement);
    REQUIRE(found.unit == unit);
    REQUIRE(split_unit(with_unit(found.statement, found.unit)).unit == unit);
  }
}

TEST_CASE("a bound is a number with a reason and a unit, which a ledger keeps", "[verify]") {
  Ledger ledger;
  const Bound bound = 2 + Bound(3, "because", "row rule");
  REQUIRE(static_cast<double>(bound + 1) == 6);
  ledger.holds("a", 1, bound, "x = y", "A §2");
  ledger.erratum("b", 1, .5, "x = y, in units of max|V|", "A §2", "x = z", 1, bound);
  ledger.control("c", 1, Bound(.5, "", "max|V|"), "x = y; residual: the norm", "A §2");
  const auto& [a, b, c] = std::tie(ledger.propositions()[0], ledger.propositions()[1], ledger.propositions()[2]);
  REQUIRE((a.bound == 5 && a.reason == "because" && a.unit == "row rule"));
  REQUIRE((b.statement == "x = y" && b.unit == "max|V|" && b.reason.empty()));
  REQUIRE((b.corrected_bound == 5 && b.corrected_reason == "because" && b.corrected_unit == "row rule"));
  REQUIRE(c.unit.empty());
}
