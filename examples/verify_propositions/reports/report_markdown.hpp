// A report as a page of Markdown.
#pragma once

#include <string>

#include "statement_rows.hpp"

namespace SYMPOW_NAMESPACE::verify {
namespace detail {

/// Text for a cell of a table: what Markdown and HTML would read as marks is escaped.
[[nodiscard]] inline std::string markdown(const std::string& text) {
  std::string result;
  for (const char c : text) {
    if (c == '&' || c == '<' || c == '>')
      result += c == '&' ? "&amp;" : c == '<' ? "&lt;" : "&gt;";
    else if (c == '\n')
      result += ' ';
    else
      result += (std::string("|\\`*_[]~#").find(c) == std::string::npos ? "" : "\\") + std::string(1, c);
  }
  return result;
}

}  // namespace detail

/// Papers, the table by paper and section, and a table of statements for each section.
[[nodiscard]] inline std::string markdown_report(const Report& report) {
  using detail::markdown;
  std::string text = "# " + markdown(report.program) + "\n\n" + markdown(report.setting()) + "\n\n";
  for (const Paper& paper : report.papers) text += "- " + paper.letter + ": " + markdown(paper.reference()) + "\n";
  const std::vector<CountColumn> columns = count_columns(report);
  text += "\n| paper | section |";
  for (const CountColumn& column : columns) text += " " + column.name + " |";
  text += "\n|---|---|";
  for (std::size_t n = 0; n < columns.size(); ++n) text += "---:|";
  for (const TableRow& row : table_rows(report)) {
    text += "\n| " + (row.is_total ? "**" + paper_name(row.paper) + "**" : row.paper) + " | " + markdown(row.section) +
            " |";
    for (const CountColumn& column : columns) text += " " + std::to_string(column.count(row.counts)) + " |";
  }
  text += "\n\n" + markdown(summary(report));
  for (const TableRow& section : table_rows(report)) {
    if (section.propositions.empty()) continue;
    text += "\n\n## " + markdown(title_of(section)) +
            "\n\n| id | verdict | residual | bound | unit | statement | place |\n|---|---|---:|---:|---|---|---|\n";
    for (const Proposition* p : section.propositions)
      for (const StatementRow& row : statement_rows(*p)) {
        text += "|";
        for (const std::string* cell :
             {&row.id, &row.verdict, &row.residual, &row.bound, &row.unit, &row.statement, &row.place})
          text += " " + markdown(*cell) + " |";
        text += "\n";
      }
  }
  return text;
}

}  // namespace SYMPOW_NAMESPACE::verify
