// What the headers cost to compile.
#include <sys/resource.h>

#include <cstdlib>

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

void compile(benchmark::State& bench) {
  for (auto _ : bench) {
    int status = 0;
    const double taken = seconds([&] { status = std::system(SYMPOW_BENCH_COMPILE); }, 1, others_clock);
    if (status != 0) return bench.SkipWithError("three_forms.cpp does not compile");
    bench.SetIterationTime(taken);
    enter({"compiling a program of the three forms, -O2", text("%.1f s", taken), "at most 20 s", taken <= 20, ""});
  }
}
BENCHMARK(compile)->Iterations(1)->UseManualTime()->Unit(benchmark::kSecond);

}  // namespace
