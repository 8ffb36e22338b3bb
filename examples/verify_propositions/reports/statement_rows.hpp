// The rows of tables of statements, in Markdown and LaTeX.
#pragma once

#include <array>
#include <string>
#include <vector>

#include <sympow/verify/report_table.hpp>

namespace SYMPOW_NAMESPACE::verify {

/// A row of a table of statements, all cells as plain text.
struct StatementRow {
  std::string id,  ///< empty in a second row
      verdict,     ///< in a second row "true is" of an erratum, empty of documentation
      residual,    ///< "3.1e-16", empty for documentation, or "exactly 0"
      bound,       ///< likewise, empty if nothing was rounded
      unit,        ///< of residual and bound, or empty; or what was decided without rounding
      statement,   ///< or the correction, in a second row
      place;       ///< the source, "A §2", empty in a second row
};

/// A proposition in rows: itself, and the corrected form of an erratum or what documentation says.
[[nodiscard]] inline std::vector<StatementRow> statement_rows(const Proposition& p) {
  if (p.kind == Kind::documentation)
    return {{p.id, verdict(p), "", "", "", p.statement, p.source}, {"", "", "", "", "", p.corrected.statement, ""}};
  const auto row = [](const std::string& id, const std::string& verdict, const Claim& claim, const std::string& place) {
    const auto number = [](double x) { return detail::print("%.1e", x + 0.); };
    const Decision& decision = claim.decision;
    if (decision.is_made())
      return StatementRow{id, verdict, detail::decided(decision), "", decision.domain, claim.statement, place};
    return StatementRow{id, verdict, number(claim.residual), number(claim.bound), claim.unit, claim.statement, place};
  };
  std::vector<StatementRow> rows = {row(p.id, verdict(p), p, p.source)};
  if (!p.decision.counterexample.empty()) rows[0].statement += "; counterexample: " + p.decision.counterexample;
  if (p.kind == Kind::erratum) rows.push_back(row("", "true is", p.corrected, ""));
  return rows;
}

/// What a section is called in a heading: "A §3.1", "D (no section)", "no paper".
[[nodiscard]] inline std::string title_of(const TableRow& section) {
  return paper_name(section.paper) + (section.section.empty() ? "" : " " + section.section);
}

}  // namespace SYMPOW_NAMESPACE::verify
