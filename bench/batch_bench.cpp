// Heads on two threads against the same call on one, by the wall.
#include <thread>

#include <sympow/attention/batch_vjp.hpp>

#include "sequences.hpp"

using namespace sympow;
using namespace sympow::bench;

namespace {

// How much faster two threads are than one at work that shares nothing: 2 on two cores that do nothing else. One
// thread is started for it as well, or a compiler makes two loops of the work that take different times.
double free_cores() {
  const auto work = [] {
    for (Index n = unless_smoke(100'000'000, 1000); n > 0; --n) benchmark::DoNotOptimize(n);
  };
  const auto together = [&](int threads) {
    std::vector<std::thread> all;
    for (int n = 0; n < threads; ++n) all.emplace_back(work);
    for (std::thread& one : all) one.join();
  };
  Times best;
  for (int round = 0; round < 5; ++round) {
    best.reference = std::min(best.reference, seconds([&] { together(1); }, 1, wall_clock));
    best.own = std::min(best.own, seconds([&] { together(2); }, 1, wall_clock));
  }
  return 2 * best.reference / best.own;
}

// attend(threads) on two threads against one, judged where two cores were free.
template <class Attend>
void report_two_threads(benchmark::State& bench, const char* of, Index heads, Index T, double at_least,
                        const Attend& attend) {
  const double cores = free_cores();
  const Times times = in_turns(bench, [&] { attend(1); }, [&] { attend(2); }, 1, wall_clock);
  report_ratio(bench,
               text("two threads, %sP = 2, d = 64, %d x %d tokens", of, static_cast<int>(heads), static_cast<int>(T)),
               times, "one thread", at_least,
               text("%.2f µs a token; %.1f cores were free", 1e6 * times.own / static_cast<double>(heads * T), cores));
  if (cores < 1.9) bars().back().holds.reset();
}

// Arguments: heads, tokens, and how many times as fast two threads must be, in per cent. The heads are [1, heads, T,
// 64].
void two_threads(benchmark::State& bench) {
  const Index heads = bench.range(0), T = unless_smoke(bench.range(1), 128), d = 64;
  ConformalTokens x(d, heads * T);
  const auto transition = decay(x.log_gamma.head(T)) * rotary(x.theta, x.beta.head(T), Pairing::interleaved);
  const auto view = [&](Matrix<float>& batch) { return Heads<float>::bhtd(batch.data(), 1, heads, T, d); };
  Workspaces<float> workspaces{1};
  const auto attend_on = [&](int threads) {
    attend(SymmetricPower<2>{}, transition,
           {.Q = view(x.Q),
            .K = view(x.K),
            .V = view(x.V),
            .Y = view(x.Y),
            .workspaces = workspaces,
            .options = {.threads = threads}});
    benchmark::DoNotOptimize(x.Y.data());
  };
  report_two_threads(bench, "", heads, T, static_cast<double>(bench.range(2)) / 100, attend_on);
}
BENCHMARK(two_threads)->Args({8, 8192, 185})->Args({1, 65536, 170})->Iterations(6)->UseManualTime();

// The same of gradients alone.
void two_threads_of_gradients(benchmark::State& bench) {
  const Index heads = 8, T = unless_smoke(8192, 128), d = 64;
  ConformalTokens x(d, heads * T);
  const auto transition = decay(x.log_gamma.head(T)) * rotary(x.theta, x.beta.head(T), Pairing::interleaved);
  Matrix<float> dY = x.random.matrix<float>(d, heads * T), dQ = dY, dK = dY, dV = dY;
  const auto view = [&](Matrix<float>& batch) { return Heads<float>::bhtd(batch.data(), 1, heads, T, d); };
  VjpWorkspaces<float> workspaces(1);
  report_two_threads(bench, "gradients, ", heads, T, 1.85, [&](int threads) {
    attend_vjp(SymmetricPower<2>{}, transition,
               {.Q = view(x.Q),
                .K = view(x.K),
                .V = view(x.V),
                .dY = view(dY),
                .dQ = view(dQ),
                .dK = view(dK),
                .dV = view(dV),
                .workspaces = workspaces,
                .options = {.threads = threads}});
    benchmark::DoNotOptimize(dQ.data());
  });
}
BENCHMARK(two_threads_of_gradients)->Iterations(4)->UseManualTime();

}  // namespace
