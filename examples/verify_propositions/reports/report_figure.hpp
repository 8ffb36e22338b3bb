// A report as a figure: every residual beside its bound, on a logarithmic scale.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string>
#include <vector>

#include <sympow/verify/report_table.hpp>
#include "figure_axis.hpp"

namespace SYMPOW_NAMESPACE::verify {
namespace detail {

/// A line of a column of the figure: a heading, or a proposition.
struct FigureRow {
  std::string heading;  ///< of a paper or a section
  bool is_paper = false;
  const Proposition* proposition = nullptr;
};

/// The rows in order; a paper's heading has its title.
[[nodiscard]] inline std::vector<FigureRow> figure_rows(const Report& report) {
  std::vector<FigureRow> rows;
  for (const TableRow& row : table_rows(report)) {
    const Paper* paper = find_paper(report.papers, row.paper);
    if (!row.is_total)
      rows.push_back({row.section});
    else if (row.paper != "all")
      rows.push_back({paper_name(row.paper) + (paper != nullptr ? ": " + paper->title : ""), true});
    for (const Proposition* p : row.propositions) rows.push_back({{}, false, p});
  }
  return rows;
}

/// Sizes of the page, in pixels.
struct FigureLayout {
  static constexpr double row = 11, column = 324, gap = 14, ids = 62, margin = 24, top = 112, bottom = 34, least = 760;
  std::size_t columns = 1, rows = 1;  ///< rows of a column

  /// As many columns as make a page that is wider than high.
  explicit FigureLayout(std::size_t all_rows) {
    for (std::size_t n = 1; n <= 8; ++n) {
      columns = n;
      rows = (all_rows + n - 1) / n + (n > 1 ? 3 : 0);  // room for headings that move on
      if (width() > 1.05 * (top + static_cast<double>(rows) * row + bottom)) break;
    }
  }
  [[nodiscard]] double width() const { return std::max(left(columns) - gap + margin, least); }
  [[nodiscard]] double left(std::size_t n) const { return margin + static_cast<double>(n) * (column + gap); }
  [[nodiscard]] static double middle(std::size_t line) { return top + (static_cast<double>(line) + .5) * row; }
};

/// A mark of its own for what was decided without rounding: a residual alone, a diamond, hollow if it is certified.
[[nodiscard]] inline std::string figure_diamond(double x, double y, const std::string& colour, Method method) {
  return print("<path d='M%.1f %.1fl3.4 3.4l-3.4 3.4l-3.4 -3.4z' fill='%s' stroke='%s'/>", x, y - 3.4,
               method == Method::exact ? colour.c_str() : "white", colour.c_str());
}

/// What the reader sees on pointing at a row.
[[nodiscard]] inline std::string figure_tooltip(const Proposition& p) {
  if (p.kind == Kind::documentation)
    return p.id + ", documented: " + p.statement + " [" + p.source + "] " + p.corrected.statement;
  const auto found = [](const Claim& claim) {
    const Decision& decision = claim.decision;
    return decision.is_made() ? decided(decision) + (decision.refuted ? ": " + decision.counterexample : "")
                              : comparison(claim.residual, claim.bound);
  };
  std::string text =
      p.id + ", " + verdict(p) + ": " + with_unit(p.statement, p.unit) + " [" + p.source + "] " + found(p);
  if (p.kind == Kind::erratum)
    text += "; true is: " + with_unit(p.corrected.statement, p.corrected.unit) + " " + found(p.corrected);
  return text;
}

/// A residual and its bound in a row at height y: a line between them, a bar for the bound, a dot or a ring for the
/// residual.
[[nodiscard]] inline std::string figure_pair(const FigureAxis& axis, double left, double y, double residual,
                                             double bound, const std::string& colour, const std::string& dot) {
  const double a = left + axis.at(residual), b = left + axis.at(bound);
  return print(
      "<path d='M%.1f %.1fH%.1f' stroke='%s' stroke-opacity='.35'/><path d='M%.1f %.1fv6' stroke='%s' "
      "stroke-width='1.6'/><circle cx='%.1f' cy='%.1f' r='%s'/>",
      a, y, b, colour.c_str(), b, y - 3, colour.c_str(), a, y, dot.c_str());
}

inline const std::string colour_holds = "#0072B2", colour_erratum = "#D55E00", colour_corrected = "#009E73",
                         colour_control = "#b0b0b0", colour_unexpected = "#CC79A7";

/// One proposition at height y of a column.
[[nodiscard]] inline std::string figure_proposition(const Proposition& p, const FigureAxis& axis, double left,
                                                    double y) {
  const bool expected = p.as_expected(), erratum = p.kind == Kind::erratum, control = p.kind == Kind::control;
  const std::string ink = erratum ? colour_erratum : control ? colour_control : colour_holds;
  const std::string label = erratum ? colour_erratum : control || p.kind == Kind::documentation ? "#8a8a8a" : "#222";
  std::string svg = "<g><title>" + xml(figure_tooltip(p)) + "</title>";
  svg += print("<rect x='%.1f' y='%.1f' width='%.1f' height='%.1f' fill='%s'/>", left, y - FigureLayout::row / 2,
               FigureLayout::column, FigureLayout::row, expected ? "transparent" : colour_unexpected.c_str());
  svg += print("<text x='%.1f' y='%.1f' text-anchor='end' fill='%s'%s>", left + FigureLayout::ids - 5, y + 2.8,
               label.c_str(), erratum ? " font-weight='bold'" : "") +
         xml(p.id) + "</text>";
  const double plot = left + FigureLayout::ids;
  if (p.kind == Kind::documentation)
    svg += print("<text x='%.1f' y='%.1f' fill='#8a8a8a' font-style='italic'>documented</text>", plot + axis.at(0) + 8,
                 y + 2.8);
  if (erratum && p.corrected.decision.is_made())
    svg +=
        figure_diamond(plot + axis.at(p.corrected.decision.size()), y, colour_corrected, p.corrected.decision.method);
  else if (erratum)
    svg += figure_pair(axis, plot, y + 1.2, p.corrected.residual, p.corrected.bound, colour_corrected,
                       "2.3' fill='white' stroke='" + colour_corrected + "' stroke-width='1.3");
  if (p.decision.is_made())
    svg += figure_diamond(plot + axis.at(p.decision.size()), y, ink, p.decision.method);
  else if (p.kind != Kind::documentation)
    svg += figure_pair(axis, plot, erratum ? y - 1.2 : y, p.residual, p.bound, ink, "2.5' fill='" + ink);
  return svg + "</g>\n";
}

/// Grid lines behind `rows` rows of a column, their labels above, and the lanes of zero and infinity.
[[nodiscard]] inline std::string figure_grid(const FigureAxis& axis, double left, std::size_t rows) {
  const double plot = left + FigureLayout::ids, top = FigureLayout::top,
               height = static_cast<double>(rows) * FigureLayout::row;
  std::string svg;
  const auto line = [&](double x, const char* colour, const std::string& label) {
    svg += print("<path d='M%.1f %.1fv%.1f' stroke='%s'/><text x='%.1f' y='%.1f' text-anchor='middle' fill='#555'>",
                 plot + x, top, height, colour, plot + x, top - 5) +
           label + "</text>\n";
  };
  for (int exponent = axis.first / axis.every * axis.every; exponent <= axis.last; exponent += axis.every)
    line(axis.at(std::pow(10., exponent)), exponent == 0 ? "#bbb" : "#e6e6e6",
         exponent == 0 ? "1" : print("10<tspan dy='-3' font-size='6'>%d</tspan>", exponent));
  line(axis.at(0), "#d8d8d8", "0");
  if (axis.has_infinity) line(axis.at(HUGE_VAL), "#d8d8d8", "∞");
  return svg;
}

/// What the marks mean, in one line.
[[nodiscard]] inline std::string figure_legend(double y, bool unexpected, bool methods) {
  std::string svg;
  double x = FigureLayout::margin + 4;
  const auto entry = [&](const std::string& colour, const std::string& dot, const std::string& words, double width) {
    svg += print(
               "<path d='M%.1f %.1fh22' stroke='%s' stroke-opacity='.35'/><path d='M%.1f %.1fv8' stroke='%s' "
               "stroke-width='1.6'/><circle cx='%.1f' cy='%.1f' r='%s'/>",
               x, y, colour.c_str(), x + 22, y - 4, colour.c_str(), x, y, dot.c_str()) +
           print("<text x='%.1f' y='%.1f'>", x + 30, y + 3) + words + "</text>\n";
    x += width;
  };
  svg += "<g font-size='10'>";
  entry(colour_holds, "3' fill='" + colour_holds, "holds: residual (dot) ≤ bound (bar)", 220);
  entry(colour_erratum, "3' fill='" + colour_erratum, "erratum: the printed form fails", 196);
  entry(colour_corrected, "2.8' fill='white' stroke='" + colour_corrected + "' stroke-width='1.4", "its corrected form",
        138);
  entry(colour_control, "3' fill='" + colour_control, "control: fails as it must", 164);
  if (methods) {
    svg += figure_diamond(x + 11, y, colour_holds, Method::exact) +
           print("<text x='%.1f' y='%.1f'>decided exactly</text>\n", x + 30, y + 3);
    x += 130;
  }
  if (unexpected)
    svg += print(
        "<rect x='%.1f' y='%.1f' width='22' height='10' fill='%s'/><text x='%.1f' y='%.1f'>not as expected</text>", x,
        y - 5, colour_unexpected.c_str(), x + 30, y + 3);
  return svg + "</g>\n";
}

/// A heading at a line of a column; words alone for what goes on from the column before.
[[nodiscard]] inline std::string figure_heading(const std::string& words, double left, std::size_t line, bool is_paper,
                                                bool continued) {
  const double y = FigureLayout::middle(line), room = FigureLayout::column - 8;
  const double width_over_size = 5.4 / 8 * static_cast<double>(characters(words));  // of bold text, at most
  const std::string style = print("%s font-size='%.1f'", continued ? "font-style='italic'" : "font-weight='bold'",
                                  std::min(8., room / width_over_size));
  return print("<rect x='%.1f' y='%.1f' width='%.1f' height='%.1f' fill='%s'/><text x='%.1f' y='%.1f' fill='%s' %s>",
               left, y - FigureLayout::row / 2, FigureLayout::column, FigureLayout::row, is_paper ? "#444" : "#eee",
               left + 3, y + 2.8, is_paper ? "white" : "#444", style.c_str()) +
         xml(words) + (continued ? ", continued" : "") + "</text>\n";
}

/// All columns, and how many lines the longest has.
struct FigureColumns {
  std::string svg;
  std::size_t lines = 0;
};

[[nodiscard]] inline FigureColumns figure_columns(const std::vector<FigureRow>& rows, const FigureLayout& layout,
                                                  const FigureAxis& axis) {
  std::string grid, content, paper, section;
  std::size_t column = 0, line = 0, longest = 0;
  for (std::size_t n = 0; n < rows.size(); ++n) {
    const FigureRow& row = rows[n];
    const std::size_t needed = row.is_paper                 ? 3
                               : row.proposition == nullptr ? 2
                                                            : 1;  // a heading stays with what follows
    if (line + needed > layout.rows && column + 1 < layout.columns) {
      grid += figure_grid(axis, layout.left(column), line);
      ++column;
      line = 0;
    }
    const double left = layout.left(column);
    if (row.proposition != nullptr) {
      if (line == 0 && n > 0) content += figure_heading(paper + " " + section, left, line++, false, true);
      content += figure_proposition(*row.proposition, axis, left, FigureLayout::middle(line));
    } else {
      if (row.is_paper) paper = row.heading.substr(0, row.heading.find(':'));
      section = row.is_paper ? "" : row.heading;
      content += figure_heading((line == 0 && !row.is_paper ? paper + " " : "") + row.heading, left, line, row.is_paper,
                                false);
    }
    longest = std::max(longest, ++line);
  }
  return {grid + figure_grid(axis, layout.left(column), line) + content, longest};
}

}  // namespace detail

/// One page of SVG: a row a statement, by paper and section; point at a row to read it. Residuals of 0 and infinity
/// have lanes of their own at both ends of the axis, in which there are also bounds of 0. Residuals are in the unit
/// of their statement. What was decided without rounding is a diamond without a bound.
[[nodiscard]] inline std::string figure_report(const Report& report) {
  using detail::FigureLayout, detail::counted, detail::print, detail::xml;
  const std::vector<detail::FigureRow> rows = detail::figure_rows(report);
  const FigureLayout layout(rows.size());
  const detail::FigureAxis axis(report.propositions, FigureLayout::column - FigureLayout::ids - 8);
  const auto [columns, lines] = detail::figure_columns(rows, layout, axis);
  const double height = FigureLayout::top + static_cast<double>(lines) * FigureLayout::row + FigureLayout::bottom;
  const Counts counts(report.propositions);
  return print(
             "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 %.0f %.0f' font-family='Helvetica, Arial, "
             "sans-serif' "
             "font-size='8'>\n<rect width='100%%' height='100%%' fill='white'/>\n",
             layout.width(), height) +
         print("<text x='%.0f' y='32' font-size='17' font-weight='bold'>", FigureLayout::margin) + xml(report.program) +
         print("</text><text x='%.0f' y='50' font-size='10' fill='#444'>", FigureLayout::margin) +
         counted(counts.total(), "statement", "statements") + ": " + counted(counts.of[0], "holds", "hold") + ", " +
         counted(counts.of[1], "erratum", "errata") + ", " + counted(counts.of[2], "control", "controls") +
         print(", %d documented, %d unexpected. ", counts.of[3], counts.unexpected()) +
         (has_methods(report) ? methods_line(counts) + ". " : "") + xml(report.setting()) + "</text>\n" +
         detail::figure_legend(72, counts.unexpected() > 0, has_methods(report)) + columns +
         print(
             "<text x='%.0f' y='%.1f' font-size='9' fill='#555'>Residual and bound of every statement in its own unit; "
             "a "
             "residual of exactly 0 stands at the left end.</text>\n</svg>\n",
             FigureLayout::margin, height - 14);
}

}  // namespace SYMPOW_NAMESPACE::verify
