// A report as a LaTeX document.
#pragma once

#include <string>

#include "latex.hpp"
#include "statement_rows.hpp"

namespace SYMPOW_NAMESPACE::verify {

/// A document for pdflatex with longtable and amssymb: papers, the table by paper and section, the statements of each
/// section.
[[nodiscard]] inline std::string latex_report(const Report& report) {
  using detail::latex;
  std::string text =
      "\\documentclass[10pt]{article}\n\\usepackage[a4paper,landscape,margin=15mm]{geometry}\n"
      "\\usepackage{amssymb,longtable,array}\n"
      "\\newcolumntype{L}[1]{>{\\raggedright\\arraybackslash}p{#1}}\n"
      "\\setlength{\\parindent}{0pt}\n\\begin{document}\n\\sloppy\n";
  text += "\\section*{" + latex(report.program) + "}\n" + latex(report.setting()) + "\n\n\\medskip\n";
  for (const Paper& paper : report.papers)
    text += "\\textbf{" + latex(paper.letter) + "} " + latex(paper.reference()) + "\\par\n";

  const std::vector<CountColumn> columns = count_columns(report);
  text += "\\begin{longtable}{ll" + std::string(columns.size(), 'r') + "}\npaper & section";
  for (const CountColumn& column : columns) text += " & " + column.name;
  text += " \\\\\\hline\n\\endhead\n";
  for (const TableRow& row : table_rows(report)) {
    if (row.is_total) text += "\\noalign{\\smallskip}\n";
    text += (row.is_total ? "\\textbf{" + latex(paper_name(row.paper)) + "}" : "") + " & " + latex(row.section);
    for (const CountColumn& column : columns) text += " & " + std::to_string(column.count(row.counts));
    text += " \\\\\n";
  }
  text += "\\end{longtable}\n" + latex(summary(report)) + "\n";

  for (const TableRow& section : table_rows(report)) {
    if (section.propositions.empty()) continue;
    text += "\n\\subsection*{" + latex(title_of(section)) + "}\n{\\footnotesize\n" +
            "\\begin{longtable}{L{20mm}L{17mm}rrL{28mm}L{115mm}L{33mm}}\n"
            "id & verdict & residual & bound & unit & statement & place \\\\\\hline\n\\endhead\n";
    for (const Proposition* p : section.propositions)
      for (const StatementRow& row : statement_rows(*p))
        text += latex(row.id) + " & " + latex(row.verdict) + " & " + latex(row.residual) + " & " + latex(row.bound) +
                " & " + latex(row.unit) + " & " + latex(row.statement) + " & " + latex(row.place) + " \\\\\n";
    text += "\\end{longtable}}\n";
  }
  return text + "\\end{document}\n";
}

}  // namespace SYMPOW_NAMESPACE::verify
