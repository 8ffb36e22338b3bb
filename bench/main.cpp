// Runs the benchmarks, then says of every bar whether it holds. `--page=FILE` replaces the table of a page, `--calibrate` measures the
// costs that forms are chosen by.
#include <ctime>
#include <fstream>
#include <iostream>
#include <span>
#include <sstream>
#include <thread>

#include "bars.hpp"

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
  if (!page.empty() && !write_page(page)) {
    std::cerr << page << " has no place for the table: it must hold " << begin_mark << "and " << end_mark << '\n';
    return 2;
  }
}
