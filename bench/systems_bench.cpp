// Named systems, chunked, against the core's peak; Gated DeltaNet and PaTH attention against the rate of Eigen's own
// product; transitions are made before.
#include "sequences.hpp"

using namespace sympow;
using namespace sympow::bench;

namespace {

constexpr Index d = 64;

Index long_T() { return unless_smoke(16384, 512); }

// Seconds of the chunked form of a linear system, and which chunk that was.
template <class A>
Times time_chunked(benchmark::State& bench, Tokens& x, const A& transition, std::string& chunk) {
  const auto form = [&](Index size) {
    State<float, Linear> state(x.d, x.e);
    chunked(Linear{}, transition, x.Q, x.K, x.V, state, x.Y, x.workspace, {.chunk = size});
    benchmark::DoNotOptimize(x.Y.data());
  };
  const Times times = in_turns(bench, Product(), [&] { form(0); });
  chunk = chunk_note(own_chunk(x.d, x.d, x.e, A::key_action), form);
  return times;
}

template <class System>
void by_share(benchmark::State& bench, const char* name, Tokens& x, const System& system, Asked at_least) {
  std::string chunk;
  const Times times = time_chunked(bench, x, system.transition, chunk);
  report_share(bench, text("%s chunked, d = 64, T = %d", name, static_cast<int>(x.T)), times,
               chunked_operations(x.d, x.d, x.e, x.T), at_least.here(),
               text("%.2f µs a token; ", 1e6 * times.own / static_cast<double>(x.T)) + chunk);
}

void retnet(benchmark::State& bench) {
  Tokens x{.d = d, .e = d, .T = long_T()};
  by_share(bench, "RetNet", x, systems::retnet(systems::retnet_gamma(6)), {.60, .60});
}
BENCHMARK(retnet)->Iterations(40)->UseManualTime();

void gla(benchmark::State& bench) {
  Tokens x{.d = d, .e = d, .T = long_T()};
  const Eigen::MatrixXf log_a = -.01F * x.random.matrix<float>(d, x.T).cwiseAbs();
  by_share(bench, "GLA", x, systems::gla(log_a), {.55, .55});
}
BENCHMARK(gla)->Iterations(40)->UseManualTime();

void mamba2(benchmark::State& bench) {
  Tokens x{.d = d, .e = d, .T = long_T()};
  by_share(bench, "Mamba-2", x, systems::mamba2(x.log_gamma), {.55, .55});
}
BENCHMARK(mamba2)->Iterations(40)->UseManualTime();

// Strengths in (0, 1).
Eigen::VectorXd strengths(Tokens& x) { return systems::sigmoid(x.random.vector(x.T)); }

// Counts 4 d (e + 1) for read and fold, the causal half of the chunk, and the chain on state and key product, 4 d (e +
// d).
double delta_net_operations(Index T) {
  return chunked_operations(d, d, d, T) + static_cast<double>(T * 4 * d * (d + d));
}

void delta_net(benchmark::State& bench) {
  Tokens x{.d = d, .e = d, .T = long_T()};
  x.K = systems::unit_columns(x.K);
  const Eigen::VectorXd beta = strengths(x);
  x.V = systems::delta_rule_values(x.V, beta);
  const auto make = [&] { return systems::gated_delta_net(x.K, beta, x.log_gamma).transition; };
  const auto transition = make();
  std::string chunk;
  const Times times = time_chunked(bench, x, transition, chunk);
  const auto T = static_cast<double>(x.T);
  report_operations(
      bench, text("Gated DeltaNet chunked, d = 64, T = %d", static_cast<int>(x.T)), times, delta_net_operations(x.T),
      .5,
      text("%.2f µs a token, the transition before it %.2f; ", 1e6 * times.own / T, 1e6 * seconds(make, 3) / T) +
          chunk);
}
BENCHMARK(delta_net)->Iterations(20)->UseManualTime();

// The same with its transition, made anew for each call, as keys ask for that depend on data.
void delta_net_with_transition(benchmark::State& bench) {
  Tokens x{.d = d, .e = d, .T = long_T()};
  x.K = systems::unit_columns(x.K);
  const Eigen::VectorXd beta = strengths(x);
  x.V = systems::delta_rule_values(x.V, beta);
  const Times times = in_turns(bench, Product(), [&] {
    const auto system = systems::gated_delta_net(x.K, beta, x.log_gamma);
    State<float, Linear> state(x.d, x.e);
    chunked(Linear{}, system.transition, x.Q, x.K, x.V, state, x.Y, x.workspace);
    benchmark::DoNotOptimize(x.Y.data());
  });
  report_operations(bench, text("Gated DeltaNet chunked with its transition, d = 64, T = %d", static_cast<int>(x.T)),
                    times, delta_net_operations(x.T), Asked{.48, .45}.here(),
                    text("%.2f µs a token", 1e6 * times.own / static_cast<double>(x.T)));
}
BENCHMARK(delta_net_with_transition)->Iterations(20)->UseManualTime();

// Counts the causal half, T² (d + e), and nothing of the pulls of queries, which are products of many tokens.
void path(benchmark::State& bench) {
  Tokens x{.d = d, .e = d, .T = unless_smoke(4096, 128)};
  const auto system = systems::path(systems::unit_columns(x.random.matrix<float>(d, x.T)), strengths(x));
  const Options options{.scale = 1 / std::sqrt(static_cast<double>(d))};
  const Times times = in_turns(bench, Product(), [&] {
    attention(system.feature, system.transition, x.Q, x.K, x.V, x.Y, x.workspace, options);
    benchmark::DoNotOptimize(x.Y.data());
  });
  const auto T = static_cast<double>(x.T);
  report_operations(bench, text("PaTH attention, d = 64, T = %d", static_cast<int>(x.T)), times, T * T * (d + d), .4);
}
BENCHMARK(path)->Iterations(12)->UseManualTime();

}  // namespace
