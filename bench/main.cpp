// Runs the benchmarks, then says of every bar whether it holds. `--page=FILE` replaces the table of a page and draws it
// in speed_bars.svg beside it, `--calibrate` measures the costs that forms are chosen by.
#include <ctime>
#include <fstream>
#include <iostream>
#include <span>
#include <sstream>
#include <thread>

#include "bars.hpp"
#include "plot.hpp"

namespace {

using namespace sympow::bench;

const std::string begin_mark = "<!-- begin: written by ./dev bench -->\n",
                  end_mark = "<!-- end: written by ./dev bench -->";

// The processor by its name, family, cores and vectors.
std::string processor() {
  std::ifstream in("/proc/cpuinfo");
  std::string name = "unknown processor", family;
  for (std::string line; std::getline(in, line);) {
    const std::string value = line.substr(std::min(line.find(':') + 2, line.size()));
    if (line.starts_with("model name")) name = value;
    if (line.starts_with("cpu family") && value == "26") family = ", Zen 5";
  }
  const std::string vectors = Eigen::SimdInstructionSetsInUse();  // the widest first
  return name + family + text(", %u cores, ", std::thread::hardware_concurrency()) +
         vectors.substr(0, vectors.find(','));
}

std::string table() {
  const std::time_t now = std::time(nullptr);
  char date[16];
  std::strftime(date, sizeof date, "%Y-%m-%d", std::localtime(&now));
  std::ostringstream out;
  out << "Measured on " << date << ": " << processor() << "; one thread unless said, float. " << SYMPOW_BENCH_COMPILER
      << ".\n\n| case | measured | bar | | |\n|---|---:|---|---|---|\n";
  for (const Bar& bar : bars())
    out << "| " << bar.name << " | " << bar.measured << " | " << bar.asked << " | "
        << (!bar.passes   ? "not judged"
            : *bar.passes ? "pass"
                          : "**short**")
        << " | " << bar.note << " |\n";
  return out.str();
}

// Puts the table between the marks of a page; false if it has none.
bool write_page(const std::string& path) {
  std::ostringstream all;
  all << std::ifstream(path).rdbuf();
  std::string page = all.str();
  const auto begin = page.find(begin_mark), end = page.find(end_mark);
  if (begin == std::string::npos || end == std::string::npos || end < begin) return false;
  const auto first = begin + begin_mark.size();
  page.replace(first, end - first, table());
  return static_cast<bool>(std::ofstream(path) << page);
}

// The bars that are ratios of speeds, each beside what is asked of it.
bool draw(const std::string& path) {
  constexpr double left = 380, of_one = 240, row = 20, top = 50, most = 1.6;
  std::ostringstream svg;
  double y = top;
  for (const Bar& bar : bars()) {
    if (bar.ratio == 0) continue;
    const double width = of_one * std::min(bar.ratio, most), asked = left + of_one * std::min(bar.least, most);
    svg << plot::text(left - 6, y + 12, "text-anchor='end' font-size='11'", bar.name) << "\n<rect x='" << left
        << "' y='" << y << "' width='" << width << "' height='14' fill='"
        << (bar.ratio >= bar.least ? "#1f77b4" : "#ff7f0e") << "'/><path d='M" << asked << ' ' << y - 2
        << "v18' stroke='black' stroke-width='2'/>"
        << plot::text(left + width + 4, y + 12, "font-size='11'", bar.measured) << "\n";
    y += row;
  }
  svg << "<path d='M" << left + of_one << ' ' << top - 6 << "V" << y << "' stroke='#888' stroke-dasharray='4 3'/>"
      << plot::text(left + of_one, y + 14, "text-anchor='middle'", "as fast as the reference");
  return plot::write("sympow_bench", path, static_cast<int>(y) + 24,
                     "Speed over that of the reference; black: what is asked", svg.str());
}

}  // namespace

int main(int argc, char** argv) {
  std::string page;
  const std::string option = "--page=";
  std::vector<char*> rest;
  static char filter[] = "--benchmark_filter=calibrate|automatic_form";
  for (char* const word : std::span(argv, static_cast<std::size_t>(argc))) {
    if (std::string(word).starts_with(option))
      page = word + option.size();
    else if (std::string(word) == "--calibrate")
      rest.push_back(filter), calibrating() = true;
    else
      rest.push_back(word);
  }
  argc = static_cast<int>(rest.size());
  rest.push_back(nullptr);
  argv = rest.data();
  Eigen::setNbThreads(1);  // of the products that cases are compared with
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  std::cout << '\n' << table();
  const std::string folder = page.substr(0, page.find_last_of('/') + 1);
  if (!page.empty() && !draw(folder + "speed_bars.svg")) return 2;
  if (!page.empty() && !write_page(page)) {
    std::cerr << page << " has no place for the table: it must hold " << begin_mark << "and " << end_mark << '\n';
    return 2;
  }
}
