// What the headers cost to compile, beside a file that includes Eigen and multiplies two matrices.
#include <sys/resource.h>

#include <cstdlib>
#include <string>

#include "bars.hpp"

using namespace sympow::bench;

namespace {

// Seconds that the programs which this one has called have worked.
double others_clock() {
  rusage used{};
  getrusage(RUSAGE_CHILDREN, &used);
  const auto all = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return all(used.ru_utime) + all(used.ru_stime);
}

// Seconds for a file of bench/compile; fewer than 0 if it does not compile.
double compile(const std::string& file, const std::string& flags) {
  int status = 0;
  const std::string command = SYMPOW_BENCH_COMPILE " " + flags + " -c '" SYMPOW_BENCH_COMPILED_FILES "/" + file +
                              ".cpp' -o '" SYMPOW_BENCH_OBJECT "'";
  const double taken = seconds([&] { status = std::system(command.c_str()); }, 1, others_clock);
  return status == 0 ? taken : -1;
}

struct File {
  const char *what, *file, *flags;
  double most;  // seconds
};

void compile_files(benchmark::State& bench) {
  const File files[] = {
      {"one attention, -O0, with sympow::forms", "one_attention", "-O0 -DSYMPOW_COMPILED_FORMS", 5},
      {"one attention, -O2, with sympow::forms", "one_attention", "-O2 -DSYMPOW_COMPILED_FORMS", 5},
      {"one attention, -O2, headers alone", "one_attention", "-O2", 9},
      {"three forms, -O2, headers alone", "three_forms", "-O2", 12},
  };
  for (auto _ : bench) {
    double all = 0;
    for (const File& file : files) {
      const double unit = compile("eigen_product", std::string(file.flags).substr(0, 3)),
                   taken = compile(file.file, file.flags);
      if (unit < 0 || taken < 0) return bench.SkipWithError("a file of bench/compile does not compile");
      enter({std::string("compiling ") + file.what, text("%.1f s", taken), text("at most %g s", file.most),
             taken <= file.most, text("%.1f times a file with Eigen/Dense and one product", taken / unit)});
      all += taken;
    }
    bench.SetIterationTime(all);
  }
}
BENCHMARK(compile_files)->Iterations(1)->UseManualTime()->Unit(benchmark::kSecond);

}  // namespace
