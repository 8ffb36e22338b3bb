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
  Asked at_most;  // times as long as Eigen's
};

void compile_files(benchmark::State& bench) {
  const File files[] = {
      {"one attention, -O0, with sympow::forms", "one_attention", "-O0 -DSYMPOW_COMPILED_FORMS", {1.4, 1.4}},
      {"one attention, -O2, with sympow::forms", "one_attention", "-O2 -DSYMPOW_COMPILED_FORMS", {1.5, 1.3}},
      {"one attention, -O2, headers alone", "one_attention", "-O2", {4.0, 3.4}},
      {"three forms, -O2, headers alone", "three_forms", "-O2", {5.5, 4.8}},
  };
  for (auto _ : bench) {
    double all = 0;
    for (const File& file : files) {
      const std::string name = std::string("compiling ") + file.what;
      Times best;
      for (int round = 0; round < unless_smoke(3, 1); ++round) {
        best.reference = std::min(best.reference, compile("eigen_product", std::string(file.flags).substr(0, 3)));
        best.own = std::min(best.own, compile(file.file, file.flags));
      }
      if (best.reference < 0 || best.own < 0) return give_up(bench, name, "a file of bench/compile does not compile");
      const double times = std::round(10 * best.own / best.reference) / 10, most = file.at_most.here();
      enter({name, times, text("%.1f", times), text("at most %.1f times a file with Eigen/Dense and one product", most),
             times <= most, text("%.1f s, that file %.1f s", best.own, best.reference)});
      all += best.own;
      if (smoke()) break;
    }
    bench.SetIterationTime(all);
  }
}
BENCHMARK(compile_files)->Iterations(1)->UseManualTime()->Unit(benchmark::kSecond);

}  // namespace
