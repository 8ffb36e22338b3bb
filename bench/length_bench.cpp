// Long sequences: as fast a token as short ones, in memory that does not grow with them.
#include "memory.hpp"
#include "sequences.hpp"

using namespace sympow;
using namespace sympow::bench;

namespace {

Index shorter() { return unless_smoke(16384, 128); }
Index longer() { return unless_smoke(262144, 1024); }

// The tokens [0, T) of a sequence, from an empty state, with all that a call makes for itself.
void run_chunked(ConformalTokens& x, Index T, Workspace<float>& workspace) {
  const auto transition = decay(x.log_gamma.head(T)) * rotary(x.theta, x.beta.head(T), Pairing::interleaved);
  State<float, SymmetricPower<2>> state(x.d, x.e);
  chunked(SymmetricPower<2>{}, transition, x.Q.leftCols(T), x.K.leftCols(T), x.V.leftCols(T), state, x.Y.leftCols(T),
          workspace);
  benchmark::DoNotOptimize(x.Y.data());
}

// As many tokens in short sequences as in a long one.
void tokens_per_second(benchmark::State& bench) {
  ConformalTokens x(64, longer());
  const Times times = in_turns(
      bench,
      [&] {
        for (Index n = 0; n < longer() / shorter(); ++n) run_chunked(x, shorter(), x.workspace);
      },
      [&] { run_chunked(x, longer(), x.workspace); });
  const auto T = static_cast<double>(longer());
  bench.counters["tokens/s"] = T / times.own;
  report_ratio(bench, "chunked, P = 2, d = 64: tokens a second at T = 262144", times, "those at T = 16384", .95,
               text("%.0f against %.0f", T / times.own, T / times.reference));
}
BENCHMARK(tokens_per_second)->Iterations(4)->UseManualTime()->Unit(benchmark::kMillisecond);

// Beyond inputs and outputs.
void peak_memory(benchmark::State& bench) {
  ConformalTokens x(64, longer());
  const std::string name = "chunked, P = 2, d = 64, T = 262144: memory beyond inputs and outputs";
  double peak = 0;
  for (auto _ : bench) {
    const auto measured = peak_mebibytes([&] {
      bench.SetIterationTime(seconds([&] {
        Workspace<float> workspace;
        run_chunked(x, longer(), workspace);
      }));
    });
    if (!measured) return bench.SkipWithError("the system does not tell the peak");
    peak = std::max(peak, *measured);
  }
  bench.counters["MiB"] = peak;
  enter({name, peak, text("%.1f MiB", peak), "at most 64 MiB", peak <= 64, ""});
}
BENCHMARK(peak_memory)->Iterations(1)->UseManualTime()->Unit(benchmark::kMillisecond);

}  // namespace
