// Reports of hand-made propositions: selections, table, JSON, LaTeX, Markdown, figure; their sources taken apart; their
// verdicts, also where a residual is not a number.
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <sstream>

#include <sympow/verify/bound.hpp>
#include <sympow/verify/place.hpp>
#include <sympow/verify/proposition.hpp>
#include <sympow/verify/report_json.hpp>
#include <sympow/verify/report_table.hpp>
#include <sympow/verify/selection.hpp>
#include "propositions/largest.hpp"
#include "reports/report_files.hpp"

#include "catch.hpp"
#include "json_reader.hpp"

using namespace sympow::verify;

// ---- reports ----

namespace test = sympow::test;

namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

Report sample() {
  Ledger ledger;
  ledger.holds("a1", 1e-17, 1e-16, "Σ φ(x) = \"y\" \\ z, relative to ‖A‖", "A §2; B §1");
  ledger.holds("a2", 0, 0, "nothing is left", "A §10");
  ledger.holds("a10", .5, {40, "many steps & sums", "row rule"}, "rows agree", "A §2, eq. (3)");
  ledger.erratum("b1", infinity, 1e-3, "P̄ x_{i-1}^p & 100 % <wrong>", "B §1", "γᵀ is Right", 1e-16,
                 {2, "two results", "row rule"});
  ledger.control("c1", 1, .5, "a mutant", "(extension)");
  ledger.documents("d1", "a listing runs", "C", "it does not");
  return {"sample", "double", 7, papers(), ledger.propositions(), "1.2.3", "a compiler", "a processor"};
}

Report with_unexpected() {
  Report report = sample();
  Ledger ledger;
  ledger.holds("u1", 2, 1, "false", "E §F.5, Theorem 2, eq. (27)");
  report.propositions.push_back(ledger.propositions().front());
  return report;
}

std::string selected(const Selection& selection) {
  std::string ids;
  const Report report = with_unexpected();
  for (const Proposition& p : report.propositions)
    if (selection(p)) ids += p.id + " ";
  return ids;
}

std::size_t occurrences(const std::string& text, const std::string& of) {
  std::size_t count = 0;
  for (std::size_t at = 0; (at = text.find(of, at)) != std::string::npos; at += of.size()) ++count;
  return count;
}

}  // namespace

TEST_CASE("a selection takes any value of a kind and all kinds", "[verify]") {
  REQUIRE(selected({}) == "a1 a2 a10 b1 c1 d1 u1 ");
  REQUIRE(selected({.ids = {"a1", "c"}}) == "a1 a10 c1 ");
  REQUIRE(selected({.ids = {"A1", "C"}}) == "a1 a10 c1 ");
  REQUIRE(selected({.words = {"ROWS", "right"}}) == "a10 b1 ");
  REQUIRE(selected({.words = {"σ φ"}}).empty());  // Greek as it stands
  REQUIRE(selected({.words = {"Σ φ"}}) == "a1 ");
  REQUIRE(selected({.papers = {"B"}}) == "a1 b1 ");
  REQUIRE(selected({.verdicts = {"holds", "unexpected"}}) == "a1 a2 a10 u1 ");
  REQUIRE(selected({.ids = {"a"}, .papers = {"B"}}) == "a1 ");
  REQUIRE(selected({.ids = {"a"}, .verdicts = {"erratum"}}).empty());
}

TEST_CASE("the table counts each proposition once, under its first place", "[verify]") {
  const auto rows = table_rows(with_unexpected());
  std::string text;
  for (const TableRow& row : rows) {
    text += paper_name(row.paper) + "|" + row.section;
    for (const int count : row.counts.of) text += " " + std::to_string(count);
    text += "\n";
  }
  REQUIRE(text ==
          "A| 3 0 0 0 0\nA|§2 2 0 0 0 0\nA|§10 1 0 0 0 0\nB| 0 1 0 0 0\nB|§1 0 1 0 0 0\nC| 0 0 0 1 0\nC|(no section) 0 "
          "0 0 1 "
          "0\nE| 0 0 0 0 1\nE|§F.5 0 0 0 0 1\nno paper| 0 0 1 0 0\nall| 3 1 1 1 1\n");
  REQUIRE_THAT(text_table(with_unexpected()), test::contains("UNEXPECTED"));
  REQUIRE(text_table(sample()).find("UNEXPECTED") == std::string::npos);
  REQUIRE_THAT(summary(sample()), test::contains("6 statements in double: 3 hold, 1 is an erratum"));
  Report one = sample();
  one.propositions.resize(1);
  REQUIRE_THAT(summary(one), test::contains("1 statement in double: 1 holds, 0 are errata"));
}

TEST_CASE("a line has the verdict, the numbers, the unit and on request the reason", "[verify]") {
  const Report report = sample();
  const std::string rows = lines_of(report.propositions[2], false), explained = lines_of(report.propositions[2], true);
  REQUIRE(rows ==
          "holds       a10           5.0e-01 <=  4.0e+01  rows agree, in units of the row rule  [A §2, eq. (3)]\n");
  REQUIRE(explained == rows + std::string(47, ' ') + "bound: many steps & sums\n");
  const std::string erratum = lines_of(report.propositions[3], true);
  REQUIRE_THAT(erratum, test::contains(
                            "  true is                 1.0e-16 <=  2.0e+00  γᵀ is Right, in units of the row rule\n"));
  REQUIRE_THAT(erratum, test::contains("bound: two results"));
  REQUIRE_THAT(lines_of(with_unexpected().propositions.back(), false), test::contains("UNEXPECTED  u1"));
  for (const Proposition& p : report.propositions) REQUIRE(list_line_of(p).find("e-") == std::string::npos);
}

TEST_CASE("JSON is valid and reads back what was decided", "[verify]") {
  const Report report = with_unexpected();
  const std::string text = json_report(report);
  const test::Json json = test::read_json(text);
  REQUIRE(json.at("seed").number == 7);
  REQUIRE(json.at("scalar").text == "double");
  REQUIRE(json.at("version").text == "1.2.3");
  REQUIRE(json.at("compiler").text == "a compiler");
  REQUIRE(json.at("processor").text == "a processor");
  REQUIRE(json.at("papers").items.size() == 5);
  const auto& all = json.at("propositions").items;
  REQUIRE(all.size() == report.propositions.size());
  for (std::size_t n = 0; n < all.size(); ++n) {
    const Proposition& p = report.propositions[n];
    REQUIRE(all[n].at("id").text == p.id);
    REQUIRE(all[n].at("statement").text == p.statement);
    REQUIRE(all[n].at("correction").text == p.corrected.statement);
    REQUIRE(all[n].at("reason").text == p.reason);
    REQUIRE(all[n].at("verdict").text == verdict(p));
    if (std::isfinite(p.residual)) REQUIRE(all[n].at("residual").number == p.residual);
    REQUIRE(all[n].at("bound").number == p.bound);
    REQUIRE((all[n].at("bound").kind == test::Json::Kind::null) == (p.kind == Kind::documentation));
  }
  REQUIRE(all[0].at("unit").text == "relative to ‖A‖");
  REQUIRE(all[1].at("unit").text == "absolute");
  REQUIRE(all[0].at("places").items.size() == 2);
  REQUIRE(all[2].at("paper").text == "A");
  REQUIRE(all[2].at("section").text == "§2");
  REQUIRE(all[2].at("equation").text == "eq. (3)");
  REQUIRE(all[3].at("residual").kind == test::Json::Kind::null);
  REQUIRE(all[3].at("corrected_residual").number == 1e-16);
  REQUIRE(all[3].at("corrected_unit").text == "row rule");
  REQUIRE(all[4].at("corrected_bound").kind == test::Json::Kind::null);
  REQUIRE(test::read_json(sympow::verify::detail::json(std::string("a\"\\\n\x01ü"))).text == "a\"\\\n\x01ü");
  REQUIRE_THROWS(test::read_json("{\"a\": 1,}"));
  REQUIRE_THROWS(test::read_json("\"a\n\""));
}

TEST_CASE("LaTeX: symbols are commands, marks are escaped, what is unknown is seen", "[verify]") {
  using sympow::verify::detail::latex;
  REQUIRE(latex("Σ φ γ ≤ ‖⊙") ==
          "\\ensuremath{\\Sigma} \\ensuremath{\\phi} \\ensuremath{\\gamma} \\ensuremath{\\le} "
          "\\ensuremath{\\|}\\ensuremath{\\odot}");
  REQUIRE(latex("Aᵀ") == "A\\ensuremath{^{\\top}}");
  REQUIRE(latex("100 % & # $ ~ \\ {}") == "100 \\% \\& \\# \\$ \\textasciitilde{} \\textbackslash{} \\{\\}");
  REQUIRE(latex("\"x\" < y|") == "{''}x{''} \\ensuremath{<} y\\ensuremath{|}");  // OT1 has none of these
  REQUIRE(latex("x_i") == "x\\ensuremath{_{\\mbox{\\scriptsize i}}}");
  REQUIRE(latex("x_{i-1}^p") == "x\\ensuremath{_{\\mbox{\\scriptsize i{-}1}}}\\ensuremath{^{\\mbox{\\scriptsize p}}}");
  REQUIRE(latex("log_gamma _ ^ x_ ^(2) x_{") ==
          "log\\_gamma \\_ \\textasciicircum{} x\\_ \\textasciicircum{}(2) x\\_\\{");
  REQUIRE(latex("P\u0304") == "\\ensuremath{\\bar{\\mathrm{P}}}");
  REQUIRE(latex("☃ 😀") == "[U+2603] [U+1F600]");
  REQUIRE(latex("\xff") == "[U+00FF]");
  REQUIRE(latex("\xe2\x89") == "[U+0089]");  // a torn character
  const std::string text = latex_report(with_unexpected());
  for (const char c : text) REQUIRE(static_cast<unsigned char>(c) < 0x80);
  REQUIRE(occurrences(text, "\\begin{") == occurrences(text, "\\end{"));
  REQUIRE(occurrences(text, "\\begin{longtable}") == 7);
}

TEST_CASE("every character of the propositions has a command in LaTeX", "[verify]") {
  namespace files = std::filesystem;
  std::size_t read = 0;
  for (const auto& entry :
       files::directory_iterator(std::string(SYMPOW_SOURCE_DIR) + "/examples/verify_propositions/propositions")) {
    std::ifstream file(entry.path());
    std::ostringstream content;
    content << file.rdbuf();
    const std::string text = sympow::verify::detail::latex(content.str());
    CAPTURE(entry.path().string());
    const std::size_t unknown = text.find("[U+");
    CAPTURE(unknown == std::string::npos ? "" : text.substr(unknown, 12));
    REQUIRE(unknown == std::string::npos);
    ++read;
  }
  REQUIRE(read > 20);
}

TEST_CASE("Markdown has a row for every form and its marks are escaped", "[verify]") {
  const std::string text = markdown_report(sample());
  REQUIRE_THAT(text, test::contains("P̄ x\\_{i-1}^p &amp; 100 % &lt;wrong&gt;"));
  REQUIRE_THAT(text, test::contains("| **A** |  | 3 | 0 | 0 | 0 | 3 |\n| A | §2 | 2 |"));
  REQUIRE_THAT(text, test::contains("| a1 | holds | 1.0e-17 | 1.0e-16 | relative to ‖A‖ |"));
  REQUIRE_THAT(text, test::contains("|  | true is | 1.0e-16 | 2.0e+00 | row rule | γᵀ is Right |  |"));
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);)
    if (line.starts_with("|")) REQUIRE(line.ends_with("|"));
}

TEST_CASE("the figure has a row for each proposition, with a tooltip", "[verify]") {
  const Report report = with_unexpected();
  const std::string svg = figure_report(report);
  REQUIRE(occurrences(svg, "<title>") == report.propositions.size());
  REQUIRE_THAT(svg, test::contains("7 statements: 3 hold, 1 erratum, 1 control, 1 documented, 1 unexpected. "));
  for (const char* tag : {"g", "text", "tspan", "title"}) {
    CAPTURE(tag);
    REQUIRE(occurrences(svg, std::string("<") + tag + " ") + occurrences(svg, std::string("<") + tag + ">") ==
            occurrences(svg, std::string("</") + tag + ">"));
  }
  REQUIRE(svg.find("<wrong>") == std::string::npos);
  REQUIRE(svg.find("nan") == std::string::npos);
  REQUIRE_THAT(svg, test::contains("∞"));
  REQUIRE_THAT(svg, test::contains("not as expected"));
  REQUIRE_THAT(svg,
               test::contains("fill='" + sympow::verify::detail::colour_erratum + "' font-weight='bold'>b1</text>"));
}

TEST_CASE("the axis keeps the order of residuals, with 0 and infinity at its ends", "[verify]") {
  const Report report = sample();
  const sympow::verify::detail::FigureAxis axis(report.propositions, 200);
  double last = -1;
  for (const double x : {0., 1e-17, 1e-16, 1e-3, .5, 1., 40., infinity}) {
    CAPTURE(x);
    REQUIRE(axis.at(x) > last);
    last = axis.at(x);
  }
  REQUIRE(last <= 200);
  REQUIRE(axis.at(std::nan("")) == axis.at(infinity));
}

// ---- sources: paper, section, equation ----

namespace {

std::vector<Place> places(const std::string& text) { return parse_source(text).places; }
std::string note(const std::string& text) { return parse_source(text).note; }

}  // namespace

TEST_CASE("a source has one place or several", "[verify]") {
  using P = std::vector<Place>;
  REQUIRE(places("C §4.1") == P{{"C", "§4.1", ""}});
  REQUIRE(places("A §2; A §A.1.1; C §4.2") == P{{"A", "§2", ""}, {"A", "§A.1.1", ""}, {"C", "§4.2", ""}});
  REQUIRE(places("D §Linear Attention; E §F") == P{{"D", "Linear Attention", ""}, {"E", "§F", ""}});
  REQUIRE(places("C §introduction") == P{{"C", "introduction", ""}});
  REQUIRE(places("C") == P{{"C", "", ""}});
  REQUIRE(places("F Theorem 7") == P{{"F", "", "Theorem 7"}});
  REQUIRE(places("F, Theorem 7") == P{{"F", "", "Theorem 7"}});
  REQUIRE(places("").empty());
}

TEST_CASE("what is smaller than a section belongs to its place", "[verify]") {
  using P = std::vector<Place>;
  REQUIRE(places("D §3, box") == P{{"D", "§3", "box"}});
  REQUIRE(places("D §4, box, listing") == P{{"D", "§4", "box, listing"}});
  REQUIRE(places("A §A.3, Proposition 2, \"In our case …\"; B §4") ==
          P{{"A", "§A.3", "Proposition 2, \"In our case …\""}, {"B", "§4", ""}});
  REQUIRE(places("E §F.5, Theorem 2, eq. (27)") == P{{"E", "§F.5", "Theorem 2, eq. (27)"}});
  REQUIRE(places("D §Linear Attention, eq. (Matrix Form)") == P{{"D", "Linear Attention", "eq. (Matrix Form)"}});
}

TEST_CASE("a note says how a statement relates to its place", "[verify]") {
  REQUIRE(note("correction of D §3") == "correction");
  REQUIRE(places("correction of D §3, listing") == std::vector<Place>{{"D", "§3", "listing"}});
  REQUIRE(note("corollary of A §A.1.2; corollary of B §1.1") == "corollary");
  REQUIRE(places("corollary of A §A.1.2; corollary of B §1.1") ==
          std::vector<Place>{{"A", "§A.1.2", ""}, {"B", "§1.1", ""}});
  REQUIRE(note("(extension)") == "extension");
  REQUIRE(places("(extension)").empty());
  REQUIRE(note("A §2, eq. (sympow)").empty());
  REQUIRE(note("C §4.1, \"The space of symmetric tensors has …\"").empty());
}

TEST_CASE("sections are in a reader's order", "[verify]") {
  const std::vector<std::string> ordered = {"introduction", "§1",     "§2",   "§2.1", "§3",   "§10",
                                            "§A.1.1",       "§A.1.2", "§A.3", "§F",   "§F.5", ""};
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
  REQUIRE((b.corrected.bound == 5 && b.corrected.reason == "because" && b.corrected.unit == "row rule"));
  REQUIRE(c.unit.empty());
}

// ---- verdicts ----

namespace {

constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();

/// The verdict on the only proposition that `add` puts into a ledger.
template <class Add>
bool as_expected(const Add& add) {
  Ledger ledger;
  add(ledger);
  REQUIRE(ledger.propositions().size() == 1);
  return ledger.propositions().front().as_expected();
}

}  // namespace

TEST_CASE("a statement is expected to have a residual within its bound", "[verify]") {
  const auto verdict = [](double residual) {
    return as_expected([=](Ledger& ledger) { ledger.holds("", residual, 1, "", ""); });
  };
  REQUIRE(verdict(0));
  REQUIRE(verdict(1));
  REQUIRE(!verdict(1.5));
  REQUIRE(!verdict(infinity));
  REQUIRE(!verdict(not_a_number));
}

TEST_CASE("a control is expected to exceed its bound by a number", "[verify]") {
  const auto verdict = [](double residual) {
    return as_expected([=](Ledger& ledger) { ledger.control("", residual, 1, "", ""); });
  };
  REQUIRE(!verdict(0));
  REQUIRE(!verdict(1));
  REQUIRE(verdict(1.5));
  REQUIRE(verdict(infinity));
  REQUIRE(!verdict(not_a_number));
}

TEST_CASE("an erratum is expected to fail as printed and to hold as corrected", "[verify]") {
  const auto verdict = [](double printed, double corrected) {
    return as_expected([=](Ledger& ledger) { ledger.erratum("", printed, 1, "", "", "", corrected, 1); });
  };
  REQUIRE(verdict(2, 0));
  REQUIRE(!verdict(0, 0));
  REQUIRE(!verdict(2, 2));
  REQUIRE(!verdict(not_a_number, 0));
  REQUIRE(!verdict(2, not_a_number));
}

TEST_CASE("documentation is always as expected", "[verify]") {
  REQUIRE(as_expected([](Ledger& ledger) { ledger.documents("", "", "", ""); }));
}

TEST_CASE("the largest residual is kept, and one that is not a number stays", "[verify]") {
  sympow::verify::detail::Largest largest;
  REQUIRE(largest.value() == 0);
  for (const double residual : {1.0, 3.0, 2.0}) largest.add(residual);
  REQUIRE(largest.value() == 3);
  largest.add(not_a_number);
  largest.add(infinity);
  REQUIRE(std::isnan(largest.value()));
}

TEST_CASE("residuals of matrices are the largest over the entries, infinite for different shapes", "[verify]") {
  const sympow::Matrix<float> a{{1, 2}, {3, 4}}, b{{1, 1}, {3, 8}};
  sympow::verify::detail::Largest scaled, relative, shapes;
  scaled.add(a, b, 2);
  REQUIRE(scaled.value() == 2);
  relative.add_relative(a, b);
  REQUIRE(relative.value() == 1);
  relative.add_relative<float>(sympow::Matrix<float>::Zero(1, 1), sympow::Matrix<float>::Zero(1, 1));
  REQUIRE(relative.value() == 1);
  shapes.add<float>(a, b.leftCols(1));
  REQUIRE(shapes.value() == infinity);
}
