// Runs the benchmarks, then says of every bar whether it holds; the exit status is 1 if one could not be measured.
// `--smoke` runs each case once with the smallest work; `--page=FILE` leaves what was measured in bench/measured,
// replaces the table of a page by what lies there and draws it in speed_bars.svg beside it; `--calibrate` measures the
// costs that forms are chosen by.
#include "page.hpp"

using namespace sympow::bench;

int main(int argc, char** argv) {
  std::string page;
  const std::string option = "--page=";
  std::vector<char*> rest;
  static char filter[] = "--benchmark_filter=calibrate|automatic_form";
  for (char* const word : std::span(argv, static_cast<std::size_t>(argc))) {
    if (std::string(word).starts_with(option))
      page = word + option.size();
    else if (std::string(word) == "--smoke")
      smoke() = true;
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
  const Column run = this_run(SYMPOW_BENCH_COMPILER);
  print(run);
  if (!page.empty() && !smoke()) {
    if (!run.bars.empty() && !write_column(SYMPOW_BENCH_MEASURED "/" + kind_of_code() + ".tsv", run)) return 2;
    const std::vector<Column> columns = read_columns(SYMPOW_BENCH_MEASURED);
    if (!draw(page.substr(0, page.find_last_of('/') + 1) + "speed_bars.svg", columns) ||
        !write_page(page, table(columns)))
      return 2;
  }
  int status = 0;
  for (const Bar& bar : run.bars)
    if (bar.failed && !smoke()) {  // code that is hardly optimized has no peak to be a share of
      std::cerr << "not measured: " << bar.name << ": " << bar.measured << ' ' << bar.asked << ", " << bar.note << '\n';
      status = 1;
    }
  return status;
}
