// How many statements of each paper and section hold.
#pragma once

#include <algorithm>
#include <array>
#include <cstdlib>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <sympow/verify/papers.hpp>
#include <sympow/verify/place.hpp>
#include <sympow/verify/report.hpp>

namespace SYMPOW_NAMESPACE::verify {

/// Numbers of propositions by verdict.
struct Counts {
  /// What `verdict` may say.
  static constexpr std::array<const char*, 5> names = {"holds", "erratum", "control", "documented", "unexpected"};
  /// How statements may be decided.
  static constexpr std::array<Method, 3> methods = {Method::exact, Method::certified, Method::bound};
  std::array<int, 5> of{};       ///< in the order of `names`
  std::array<int, 3> decided{};  ///< in the order of `methods`; what is documented is not among them

  Counts() = default;
  /// Of all of these.
  explicit Counts(const std::vector<Proposition>& propositions) {
    for (const Proposition& p : propositions) add(p);
  }

  /// Counts one more of its verdict, and of its method.
  void add(const Proposition& p) {
    const std::string name = verdict(p);
    for (std::size_t n = 0; n < names.size(); ++n) of[n] += name == names[n];
    for (std::size_t n = 0; n < methods.size(); ++n)
      decided[n] += p.kind != Kind::documentation && p.method() == methods[n];
  }
  /// Adds the numbers of each verdict and method.
  void add(const Counts& more) {
    for (std::size_t n = 0; n < of.size(); ++n) of[n] += more.of[n];
    for (std::size_t n = 0; n < decided.size(); ++n) decided[n] += more.decided[n];
  }
  [[nodiscard]] int unexpected() const { return of[4]; }  ///< how many came out otherwise than the ledger expects
  [[nodiscard]] int total() const { return of[0] + of[1] + of[2] + of[3] + of[4]; }  ///< of all verdicts
};

/// A row of the table: a section of a paper, or a total.
struct TableRow {
  std::string paper,      ///< its letter, empty for statements of nobody's, "all" in the last row
      section;            ///< "§3.1" or a heading, "(no section)", empty in a total
  Counts counts = {};     ///< of the section, of the paper or of all
  bool is_total = false;  ///< of a paper or of all
  std::vector<const Proposition*> propositions = {};  ///< whose first place is in the section, in their order
};

namespace detail {

/// Headings without a number stand before §1.
[[nodiscard]] inline int rank_of_section(const std::string& section) {
  return section.empty() ? 2 : section.starts_with("§") ? 1 : 0;
}

/// Whether a section comes before another: "§3" < "§3.1" < "§10" < "§A". Headings keep the order in which they came.
[[nodiscard]] inline bool section_before(const std::string& a, const std::string& b) {
  if (rank_of_section(a) != 1 || rank_of_section(b) != 1) return rank_of_section(a) < rank_of_section(b);
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  std::size_t i = 0, j = 0;
  while (i < a.size() && j < b.size()) {
    if (is_digit(a[i]) && is_digit(b[j])) {
      const int x = std::atoi(a.c_str() + i), y = std::atoi(b.c_str() + j);
      if (x != y) return x < y;
      while (i < a.size() && is_digit(a[i])) ++i;
      while (j < b.size() && is_digit(b[j])) ++j;
    } else if (a[i] != b[j]) {
      return a[i] < b[j];
    } else {
      ++i, ++j;
    }
  }
  return a.size() - i < b.size() - j;
}

}  // namespace detail

/// The propositions by paper and section: papers in the order of the report's list, then others, then statements of
/// nobody's, which stand in their total. A paper's first row is its total, and the last row that of all.
[[nodiscard]] inline std::vector<TableRow> table_rows(const Report& report) {
  const auto rank = [&](const std::string& letter) {
    const Paper* paper = find_paper(report.papers, letter);
    if (paper != nullptr) return paper - report.papers.data();
    return static_cast<std::ptrdiff_t>(report.papers.size()) + (letter.empty() ? 256 : letter[0]);
  };
  std::vector<TableRow> sections, rows;
  for (const Proposition& p : report.propositions) {
    const Place place = parse_source(p.source).first();
    const auto same = [&](const TableRow& s) { return s.paper == place.paper && s.section == place.section; };
    const auto after = [&](const TableRow& s) {
      return s.paper != place.paper ? rank(place.paper) < rank(s.paper)
                                    : detail::section_before(place.section, s.section);
    };
    auto at = std::find_if(sections.begin(), sections.end(), same);
    if (at == sections.end())
      at = sections.insert(std::find_if(sections.begin(), sections.end(), after), {place.paper, place.section});
    at->counts.add(p);
    at->propositions.push_back(&p);
  }
  std::size_t total = 0;
  for (TableRow& section : sections) {
    if (rows.empty() || section.paper != rows[total].paper) {
      total = rows.size();
      rows.push_back({section.paper, {}, {}, true});
    }
    rows[total].counts.add(section.counts);
    if (section.section.empty()) section.section = "(no section)";
    if (section.paper.empty())
      rows[total].propositions = section.propositions;
    else
      rows.push_back(std::move(section));
  }
  rows.push_back({"all", {}, Counts(report.propositions), true});
  return rows;
}

/// What a row is called in its first column: "A", "no paper", "all".
[[nodiscard]] inline std::string paper_name(const std::string& letter) { return letter.empty() ? "no paper" : letter; }

/// Whether something was decided without rounding, so that a table says how, in three more columns.
[[nodiscard]] inline bool has_methods(const Report& report) {
  return std::any_of(report.propositions.begin(), report.propositions.end(),
                     [](const Proposition& p) { return p.decision.is_made(); });
}

/// A column of the table by paper and section.
struct CountColumn {
  std::string name;                         ///< its head
  std::function<int(const Counts&)> count;  ///< the number of a line
};

/// The columns of the table: verdicts, "UNEXPECTED" only if there is one, the total, and methods if it has any.
[[nodiscard]] inline std::vector<CountColumn> count_columns(const Report& report) {
  constexpr std::array verdicts = {"holds", "errata", "controls", "documented", "UNEXPECTED"};
  constexpr std::array methods = {"exactly", "certified", "in bounds"};
  std::vector<CountColumn> columns;
  for (std::size_t n = 0; n < verdicts.size() - (Counts(report.propositions).unexpected() == 0); ++n)
    columns.push_back({verdicts[n], [n](const Counts& counts) { return counts.of[n]; }});
  columns.push_back({"total", &Counts::total});
  for (std::size_t n = 0; n < methods.size() && has_methods(report); ++n)
    columns.push_back({methods[n], [n](const Counts& counts) { return counts.decided[n]; }});
  return columns;
}

/// The table as text.
[[nodiscard]] inline std::string text_table(const Report& report) {
  const std::vector<TableRow> rows = table_rows(report);
  const std::vector<CountColumn> columns = count_columns(report);
  const auto cell = [](const CountColumn& column, const std::string& content) {
    const std::size_t room = column.name == "total" ? 6 : 10, size = detail::characters(content);
    return "  " + std::string(size < room ? room - size : 0, ' ') + content;
  };
  std::size_t width = detail::characters("section");
  for (const TableRow& row : rows) width = std::max(width, detail::characters(row.section));
  std::string text = detail::padded("paper", 10) + detail::padded("section", width);
  for (const CountColumn& column : columns) text += cell(column, column.name);
  text += "\n";
  for (const TableRow& row : rows) {
    if (row.is_total) text += "\n";
    text += detail::padded(row.is_total ? paper_name(row.paper) : "", 10) + detail::padded(row.section, width);
    for (const CountColumn& column : columns) {
      const int count = column.count(row.counts);
      text += cell(column, count == 0 ? "" : std::to_string(count));
    }
    text.erase(text.find_last_not_of(' ') + 1);
    text += "\n";
  }
  return text + "\nA statement counts once, in the first place that it names.\n";
}

/// "203 decided exactly, 12 certified, 242 within bounds".
[[nodiscard]] inline std::string methods_line(const Counts& counts) {
  return std::to_string(counts.decided[0]) + " decided exactly, " + std::to_string(counts.decided[1]) + " certified, " +
         std::to_string(counts.decided[2]) + " within bounds";
}

/// The last line: how many of what.
[[nodiscard]] inline std::string summary(const Report& report) {
  const Counts counts(report.propositions);
  using detail::counted;
  return counted(counts.total(), "statement", "statements") + " in " + report.scalar + ": " +
         counted(counts.of[0], "holds", "hold") + ", " + counted(counts.of[1], "is an erratum", "are errata") +
         " (the printed form fails, the corrected one holds), " +
         counted(counts.of[2], "control fails as it must", "controls fail as they must") + ",\n" +
         counted(counts.of[3], "is", "are") + " about the papers' listings as programs and documented, " +
         std::to_string(counts.unexpected()) + " unexpected\n" +
         (has_methods(report) ? methods_line(counts) + "\n" : "");
}

}  // namespace SYMPOW_NAMESPACE::verify
