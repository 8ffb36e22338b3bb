// One long head and many short ones on several threads, against the chunked form of one head on one thread.
#include <sympow/core/random.hpp>
#include <sympow/sympow.hpp>

#include <benchmark/benchmark.h>

#include "timing.hpp"

using namespace sympow;
using namespace sympow::bench;

namespace {

// `heads` heads of T tokens in [1, heads, T, 64], decay alone or with rotary.
struct Batch64 {
  static constexpr Index d = 64;
  Index heads, T;
  Random random{1};
  Matrix<float> Q = random.matrix<float>(d, heads* T), K = random.matrix<float>(d, heads* T);
  Matrix<float> V = random.matrix<float>(d, heads* T), Y = V;
  Eigen::VectorXd log_gamma = -.01 * random.vector(T).cwiseAbs(), theta = rotary_frequencies<double>(d, 4096);
  Workspaces<float> workspaces{1};

  [[nodiscard]] auto view(Matrix<float>& x) const { return Heads<float>::bhtd(x.data(), 1, heads, T, d); }
};

// Arguments: heads, tokens, threads, whether keys turn. "speed" is that of so many chunked forms one after the other on one thread, 1.
void batch(benchmark::State& bench) {
  using F = SymmetricPower<2>;
  Batch64 x{.heads = bench.range(0), .T = bench.range(1)};
  const auto measure = [&](const auto& transition) {
    const double alone = best_seconds(3, [&] {
      State<float, F> state(x.d, x.d);
      chunked(F{}, transition, x.Q.leftCols(x.T), x.K.leftCols(x.T), x.V.leftCols(x.T), state, x.Y.leftCols(x.T),
              x.workspaces[0]);
      benchmark::DoNotOptimize(x.Y.data());
    });
    const double seconds = run(bench, [&] {
      attend(F{}, transition, x.view(x.Q), x.view(x.K), x.view(x.V), x.view(x.Y), x.workspaces,
             {.threads = static_cast<int>(bench.range(2))});
      benchmark::DoNotOptimize(x.Y.data());
    });
    bench.counters["speed"] = static_cast<double>(x.heads) * alone / seconds;
  };
  if (bench.range(3) != 0)
    measure(decay(x.log_gamma) * rotary(x.theta));
  else
    measure(decay(x.log_gamma));
}
BENCHMARK(batch)
    ->ArgNames({"heads", "T", "threads", "rotary"})
    ->ArgsProduct({{1}, {65536}, {1, 2}, {0, 1}})
    ->ArgsProduct({{8}, {2048}, {1, 2}, {0, 1}})
    ->UseRealTime();

}  // namespace
