// Seconds: of a benchmark's own loop, and of what it is compared with, in the same process.
#pragma once

#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <limits>

namespace sympow::bench {

/// The fastest of some runs.
template <class F>
double best_seconds(int repeats, F&& f) {
  double best = std::numeric_limits<double>::infinity();
  for (int n = 0; n < repeats; ++n) {
    const auto start = std::chrono::steady_clock::now();
    f();
    best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  return best;
}

/// Runs the body as often as the benchmark asks; seconds of the fastest run.
template <class F>
double run(benchmark::State& bench, F&& body) {
  double best = std::numeric_limits<double>::infinity();
  for (auto _ : bench) best = std::min(best, best_seconds(1, body));
  return best;
}

}  // namespace sympow::bench
