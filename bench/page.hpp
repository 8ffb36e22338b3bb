// What a run leaves in bench/measured, a file for each kind of code, and the page that is made of these files.
#pragma once

#include <cmath>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <span>
#include <sstream>
#include <thread>

#include "bars.hpp"
#include "plot.hpp"

namespace sympow::bench {

inline constexpr const char* pass = "pass";
inline constexpr const char* failed = "**not measured**";

/// A verdict in words.
inline std::string verdict(const Bar& bar) {
  if (bar.failed) return failed;
  return !bar.holds ? "not judged" : *bar.holds ? pass : "**short**";
}

/// The bars of one run, and where and how they were measured.
struct Column {
  std::string title, origin{};
  std::vector<Bar> bars{};
};

// ---- a run ----

/// The kind of code that was compiled, as names of the library carry it.
inline std::string kind_of_code() {
#define SYMPOW_BENCH_WORD(x) #x
#define SYMPOW_BENCH_EXPAND(x) SYMPOW_BENCH_WORD(x)
  return SYMPOW_BENCH_EXPAND(SYMPOW_INSTRUCTIONS);
}

/// How a page calls it.
inline std::string title_of(const std::string& kind) {
  return kind == "avx2_fma" ? "x86-64-v3" : kind == "avx512" ? "AVX-512" : kind;
}

/// The processor by its name, generation and cores.
inline std::string processor() {
  std::ifstream in("/proc/cpuinfo");
  std::string name = "unknown processor", family, model;
  for (std::string line; std::getline(in, line);) {
    const std::string value = line.substr(std::min(line.find(':') + 2, line.size()));
    if (line.starts_with("model name")) name = value;
    if (line.starts_with("cpu family")) family = value;
    if (line.starts_with("model\t")) model = value;
  }
  return name + (family.empty() ? "" : ", family " + family + " model " + model) +
         text(", %u cores", std::thread::hardware_concurrency());
}

/// This run.
inline Column this_run(const std::string& compiler) {
  const std::time_t now = std::time(nullptr);
  char date[16];
  std::strftime(date, sizeof date, "%Y-%m-%d", std::localtime(&now));
  return {title_of(kind_of_code()),
          "measured on " + std::string(date) + ": " + processor() + "; one thread unless said, float; " + compiler,
          bars()};
}

/// Prints the table of a run, the program's last output.
inline void print(const Column& run) {
  std::cout << "\n"
            << run.title << ", " << run.origin << (smoke() ? "\nOnce, with the smallest work: nothing is judged." : "")
            << "\n\n| case | measured | bar | | |\n|---|---:|---|---|---|\n";
  for (const Bar& bar : run.bars)
    std::cout << "| " << bar.name << " | " << bar.measured << " | " << bar.asked << " | " << verdict(bar) << " | "
              << bar.note << " |\n";
}

// ---- the files ----

/// A line of a file: what a bar says, separated by tabs.
inline bool write_column(const std::string& path, const Column& column) {
  std::ofstream out(path);
  out << column.origin << '\n';
  for (const Bar& bar : column.bars)
    out << bar.name << '\t' << bar.measured << '\t' << bar.asked << '\t' << verdict(bar) << '\t' << bar.note << '\t'
        << bar.speed << '\t' << bar.least << '\n';
  return static_cast<bool>(out.flush());
}

inline Column read_column(const std::string& path, const std::string& title) {
  Column column{.title = title};
  std::ifstream in(path);
  std::getline(in, column.origin);
  for (std::string line; std::getline(in, line);) {
    std::istringstream fields(line);
    Bar bar;
    std::string said, speed, least;
    for (std::string* field : {&bar.name, &bar.measured, &bar.asked, &said, &bar.note, &speed, &least})
      std::getline(fields, *field, '\t');
    if (said == pass || said == "**short**") bar.holds = said == pass;
    bar.failed = said == failed;
    bar.speed = std::strtod(speed.c_str(), nullptr), bar.least = std::strtod(least.c_str(), nullptr);
    column.bars.push_back(bar);
  }
  return column;
}

/// The columns of all files in a folder: x86-64-v3, AVX-512, what else there is.
inline std::vector<Column> read_columns(const std::string& folder) {
  std::vector<std::string> kinds;
  for (const auto& file : std::filesystem::directory_iterator(folder))
    if (file.path().extension() == ".tsv") kinds.push_back(file.path().stem().string());
  std::sort(kinds.begin(), kinds.end(), [](const std::string& a, const std::string& b) {
    return std::pair(!a.starts_with("avx"), a) < std::pair(!b.starts_with("avx"), b);
  });
  std::vector<Column> columns;
  for (const std::string& kind : kinds) columns.push_back(read_column(folder + "/" + kind + ".tsv", title_of(kind)));
  return columns;
}

// ---- the page ----

/// Names of all bars, those of the first column first.
inline std::vector<std::string> names_of(const std::vector<Column>& columns) {
  std::vector<std::string> names;
  for (const Column& column : columns)
    for (const Bar& bar : column.bars)
      if (std::find(names.begin(), names.end(), bar.name) == names.end()) names.push_back(bar.name);
  return names;
}

inline const Bar* find(const Column& column, const std::string& name) {
  const auto bar =
      std::find_if(column.bars.begin(), column.bars.end(), [&](const Bar& some) { return some.name == name; });
  return bar == column.bars.end() ? nullptr : &*bar;
}

/// A table with what each kind of code made, what is asked of it, and whether it holds; before it, how many bars hold.
inline std::string table(const std::vector<Column>& columns) {
  std::ostringstream out, head, rule;
  for (const Column& column : columns) {
    const auto count = [&](const std::string& said) {
      return static_cast<int>(
          std::count_if(column.bars.begin(), column.bars.end(), [&](const Bar& bar) { return verdict(bar) == said; }));
    };
    out << "- " << column.title << ", " << column.origin
        << text(": %d bars hold, %d are short", count(pass), count("**short**"));
    if (const int lost = count(failed)) out << text(", %d were not measured", lost);
    out << ".\n";
    head << " " << column.title << " | bar | | details |";
    rule << "---:|---|---|---|";
  }
  out << "\n| case |" << head.str() << "\n|---|" << rule.str() << "\n";
  for (const std::string& name : names_of(columns)) {
    out << "| " << name << " |";
    for (const Column& column : columns)
      if (const Bar* bar = find(column, name))
        out << " " << bar->measured << " | " << bar->asked << " | " << verdict(*bar) << " | " << bar->note << " |";
      else
        out << " – | | | |";
    out << "\n";
  }
  return out.str();
}

/// Puts the table between the marks of a page; false if it has none.
inline bool write_page(const std::string& path, const std::string& contents) {
  const std::string begin_mark = "<!-- begin: written by ./dev bench -->\n",
                    end_mark = "<!-- end: written by ./dev bench -->";
  std::ostringstream all;
  all << std::ifstream(path).rdbuf();
  std::string page = all.str();
  const auto begin = page.find(begin_mark), end = page.find(end_mark);
  if (begin == std::string::npos || end == std::string::npos || end < begin) {
    std::cerr << path << " has no place for the table: it must hold " << begin_mark << "and " << end_mark << '\n';
    return false;
  }
  const auto first = begin + begin_mark.size();
  page.replace(first, end - first, contents);
  return static_cast<bool>(std::ofstream(path) << page);
}

/// The first number of some words, as it is written there.
inline std::string number_in(const std::string& words) {
  const auto first = words.find_first_of("0123456789");
  if (first == std::string::npos) return "";
  return words.substr(first, words.find_first_not_of("0123456789.", first) - first);
}

/// The bars that are ratios of speeds, each in units of what is asked of it, one below the other for each kind of code.
inline bool draw(const std::string& path, const std::vector<Column>& columns) {
  constexpr double left = 372, octave = 58, most = 4, line = 15, top = 78, middle = left + 2 * octave;
  constexpr double columns_at[] = {678, 728, 738};  // measured, asked, kind of code
  const auto place_of = [&](double ratio) { return middle + octave * std::log2(std::clamp(ratio, 1 / most, most)); };
  std::ostringstream svg, grid;
  double y = top;
  for (const std::string& name : names_of(columns)) {
    const double first = y;
    for (const Column& column : columns) {
      const Bar* bar = find(column, name);
      if (!bar || bar->failed || bar->speed == 0 || bar->least == 0) continue;
      const double ratio = bar->speed / bar->least, end = place_of(ratio);
      const char* color = !bar->holds ? plot::gray : *bar->holds ? plot::blue : plot::orange;
      svg << "<rect x='" << std::min(middle, end) << "' y='" << y + 2 << "' width='"
          << std::max(2., std::abs(end - middle)) << "' height='" << line - 5 << "' fill='" << color << "'/>"
          << plot::text(columns_at[0], y + 11, "text-anchor='end' font-size='11'", bar->measured)
          << plot::text(columns_at[1], y + 11, "text-anchor='end' font-size='11'", number_in(bar->asked))
          << plot::text(columns_at[2], y + 11, "font-size='11'", column.title) << "\n";
      y += line;
    }
    if (y == first) continue;
    const bool is_long = name.size() > 62;  // in two lines
    const auto cut = is_long ? name.rfind(' ', 62) : name.size();
    svg << plot::text(left - 8, (first + y) / 2 + (is_long ? -2 : 4), "text-anchor='end' font-size='11'",
                      name.substr(0, cut));
    if (is_long)
      svg << plot::text(left - 8, (first + y) / 2 + 11, "text-anchor='end' font-size='11'", name.substr(cut + 1));
    svg << "\n";
    y += is_long && y - first < 2 * line ? line : 5;
  }
  for (const auto& [ratio, label] : {std::pair{.25, "¼"}, {.5, "½"}, {1., "1: as asked"}, {2., "2"}, {4., "4"}})
    grid << "<path d='M" << place_of(ratio) << ' ' << top - 4 << "V" << y << "' stroke='"
         << (ratio == 1 ? "black" : "#ddd") << "'/>"
         << plot::text(place_of(ratio), top - 10, "text-anchor='middle' font-size='11'", label) << "\n";
  grid << plot::text(20, 44, "",
                     "Speed in units of what is asked, on a logarithmic scale. Right, blue: the bar holds. "
                     "Left, orange: short. Gray: not judged.")
       << plot::text(columns_at[0], top - 10, "text-anchor='end' font-size='11'", "measured")
       << plot::text(columns_at[1], top - 10, "text-anchor='end' font-size='11'", "asked") << "\n";
  return plot::write("sympow_bench", path, static_cast<int>(y) + 14, "The speed bars", grid.str() + svg.str());
}

}  // namespace sympow::bench
