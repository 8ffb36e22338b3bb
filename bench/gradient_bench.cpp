// Gradients beside the forward pass: both together against the forward pass alone, in one run. Gate, learned rotary,
// normaliser and contract are on but for named systems.
#include <sympow/attention/batch_vjp.hpp>

#include "memory.hpp"
#include "sequences.hpp"

using namespace sympow;
using namespace sympow::bench;

namespace {

constexpr Index d = 64;

// What a step of training keeps from one to the next.
template <class F, class A>
struct Step {
  F feature;
  const A& transition;
  Tokens& x;
  Matrix<float> dY = x.random.matrix<float>(x.e, x.T);
  Tape<float, F> tape{};
  Gradients<float, A> gradients{};
  VjpWorkspace<float> workspace{};

  void chunked_forward() {
    State<float, F> state(feature, x.d, x.e);
    chunked(feature, transition, x.Q, x.K, x.V, state, x.Y, x.workspace);
    benchmark::DoNotOptimize(x.Y.data());
  }
  void chunked_both() {
    State<float, F> state(feature, x.d, x.e);
    StateGradient<float, F> adjoint(feature, x.d, x.e);
    chunked(feature, transition, x.Q, x.K, x.V, state, {x.Y, tape}, x.workspace);
    gradients = chunked_vjp(feature, transition,
                            {.Q = x.Q,
                             .K = x.K,
                             .V = x.V,
                             .dY = dY,
                             .tape = tape,
                             .d_state = adjoint,
                             .reuse = gradients,
                             .workspace = workspace});
    benchmark::DoNotOptimize(gradients.K.data());
  }
  void attention_forward() {
    attention(feature, transition, x.Q, x.K, x.V, x.Y, x.workspace);
    benchmark::DoNotOptimize(x.Y.data());
  }
  void attention_both() {
    attention(feature, transition, x.Q, x.K, x.V, {x.Y, tape}, x.workspace);
    gradients = attention_vjp(
        feature, transition,
        {.Q = x.Q, .K = x.K, .V = x.V, .dY = dY, .tape = tape, .reuse = gradients, .workspace = workspace});
    benchmark::DoNotOptimize(gradients.K.data());
  }
};
template <class F, class A>
Step(F, const A&, Tokens&) -> Step<F, A>;

// Forward and backward over forward, of which at most so many times as long is asked.
void report_times(benchmark::State& bench, const std::string& name, Times times, double at_most, Index T) {
  const double measured = times.own / times.reference, of_token = 1e6 / static_cast<double>(T);
  bench.counters["times"] = measured;
  enter({name + ": forward and backward", measured, text("%.2f", measured), text("at most %.2f times forward", at_most),
         measured <= at_most, text("%.2f µs a token, forward %.2f", of_token * times.own, of_token * times.reference),
         1 / measured, 1 / at_most});
}

template <class A>
void chunked_times(benchmark::State& bench, const std::string& name, Step<Linear, A>& step, double at_most) {
  const Times times = in_turns(bench, [&] { step.chunked_forward(); }, [&] { step.chunked_both(); });
  report_times(bench, name + text(" chunked, d = 64, T = %d", static_cast<int>(step.x.T)), times, at_most, step.x.T);
}

template <int P>
void conformal_chunked(benchmark::State& bench) {
  ConformalTokens x(bench.range(0), unless_smoke(16384, 512));
  Step step{SymmetricPower<P>{}, x.transition, x};
  const Times times = in_turns(bench, [&] { step.chunked_forward(); }, [&] { step.chunked_both(); });
  report_times(bench, text("chunked, P = %d, d = %d, T = %d", P, static_cast<int>(x.d), static_cast<int>(x.T)), times,
               3.4, x.T);
}
BENCHMARK(conformal_chunked<2>)->Arg(64)->Arg(32)->Iterations(10)->UseManualTime();
BENCHMARK(conformal_chunked<3>)->Arg(32)->Iterations(6)->UseManualTime();
BENCHMARK(conformal_chunked<4>)->Arg(16)->Iterations(10)->UseManualTime();

// Counts 12 D (e + 1) a token.
void conformal_chunked_rate(benchmark::State& bench) {
  ConformalTokens x(d, unless_smoke(16384, 1024));
  Step step{SymmetricPower<2>{}, x.transition, x};
  const Times times = in_turns(bench, Product(), [&] { step.chunked_both(); });
  report_operations(bench,
                    text("chunked, P = 2, d = 64, T = %d: operations forward and backward", static_cast<int>(x.T)),
                    times, 12. * static_cast<double>(step.feature.dimension(x.d) * (x.e + 1) * x.T), .85);
}
BENCHMARK(conformal_chunked_rate)->Iterations(10)->UseManualTime();

template <int P>
void conformal_attention(benchmark::State& bench) {
  ConformalTokens x(d, unless_smoke(4096, 128));
  Step step{SymmetricPower<P>{}, x.transition, x};
  const Times times = in_turns(bench, [&] { step.attention_forward(); }, [&] { step.attention_both(); });
  report_times(bench, text("attention, P = %d, d = 64, T = %d", P, static_cast<int>(x.T)), times, 3.6, x.T);
}
BENCHMARK(conformal_attention<2>)->Iterations(20)->UseManualTime();
BENCHMARK(conformal_attention<4>)->Iterations(20)->UseManualTime();

void softmax_gradients(benchmark::State& bench) {
  ConformalTokens x(d, unless_smoke(4096, 128));
  const Options options{.scale = 1 / std::sqrt(static_cast<double>(d))};
  const Matrix<float> dY = x.random.matrix<float>(x.e, x.T);
  Tape<float, Exponential> tape;
  Gradients<float, decltype(x.transition)> gradients;
  VjpWorkspace<float> workspace;
  const Times times = in_turns(
      bench,
      [&] {
        attention(Exponential{}, x.transition, x.Q, x.K, x.V, x.Y, x.workspace, options);
        benchmark::DoNotOptimize(x.Y.data());
      },
      [&] {
        attention(Exponential{}, x.transition, x.Q, x.K, x.V, {x.Y, tape}, x.workspace, options);
        gradients = attention_vjp(Exponential{}, x.transition,
                                  {.Q = x.Q,
                                   .K = x.K,
                                   .V = x.V,
                                   .dY = dY,
                                   .tape = tape,
                                   .reuse = gradients,
                                   .workspace = workspace,
                                   .options = options});
        benchmark::DoNotOptimize(gradients.K.data());
      });
  report_times(bench, text("softmax attention, d = 64, T = %d", static_cast<int>(x.T)), times, 3.6, x.T);
}
BENCHMARK(softmax_gradients)->Iterations(20)->UseManualTime();

Tokens long_tokens() { return {.d = d, .e = d, .T = unless_smoke(16384, 512)}; }

void retnet_gradients(benchmark::State& bench) {
  Tokens x = long_tokens();
  const auto system = systems::retnet(systems::retnet_gamma(6));
  Step step{system.feature, system.transition, x};
  chunked_times(bench, "RetNet", step, 4);
}
BENCHMARK(retnet_gradients)->Iterations(40)->UseManualTime();

void gla_gradients(benchmark::State& bench) {
  Tokens x = long_tokens();
  const Eigen::MatrixXf log_a = -.01F * x.random.matrix<float>(d, x.T).cwiseAbs();
  const auto system = systems::gla(log_a);
  Step step{system.feature, system.transition, x};
  chunked_times(bench, "GLA", step, 4);
}
BENCHMARK(gla_gradients)->Iterations(40)->UseManualTime();

void mamba2_gradients(benchmark::State& bench) {
  Tokens x = long_tokens();
  const auto system = systems::mamba2(x.log_gamma);
  Step step{system.feature, system.transition, x};
  chunked_times(bench, "Mamba-2", step, 4);
}
BENCHMARK(mamba2_gradients)->Iterations(40)->UseManualTime();

void delta_net_gradients(benchmark::State& bench) {
  Tokens x = long_tokens();
  x.K = systems::unit_columns(x.K);
  const Eigen::VectorXd beta = systems::sigmoid(x.random.vector(x.T));
  x.V = systems::delta_rule_values(x.V, beta);
  const bool is_strong = bench.range(0) != 0;
  if (is_strong) x.log_gamma.setConstant(-3);  // a chunk's keys are further apart than the type's numbers
  const auto system = systems::gated_delta_net(x.K, beta, x.log_gamma);
  Step step{system.feature, system.transition, x};
  chunked_times(bench, is_strong ? "Gated DeltaNet, gates of e^-3," : "Gated DeltaNet", step, is_strong ? 12 : 4.5);
}
BENCHMARK(delta_net_gradients)->Arg(0)->Arg(1)->Iterations(20)->UseManualTime();

// Beyond inputs, outputs and gradients, with the spacing of states that the library takes.
void peak_memory_of_gradients(benchmark::State& bench) {
  ConformalTokens x(d, unless_smoke(262144, 1024));
  const Matrix<float> dY = x.random.matrix<float>(x.e, x.T);
  Gradients<float, decltype(x.transition)> gradients;
  for (auto* gradient : {&gradients.Q, &gradients.K, &gradients.V}) gradient->setZero(d, x.T);
  const std::string name =
      text("gradients, chunked, P = 2, d = 64, T = %d: memory beyond arguments and results", static_cast<int>(x.T));
  double peak = 0;
  for (auto _ : bench) {
    const auto measured = peak_mebibytes([&] {
      bench.SetIterationTime(seconds([&] {
        VjpWorkspace<float> workspace;
        State<float, SymmetricPower<2>> state(x.d, x.e);
        const auto first = state;
        chunked(SymmetricPower<2>{}, x.transition, x.Q, x.K, x.V, state, x.Y, workspace);
        StateGradient<float, SymmetricPower<2>> adjoint(SymmetricPower<2>{}, x.d, x.e);
        gradients = chunked_vjp(SymmetricPower<2>{}, x.transition,
                                {.Q = x.Q,
                                 .K = x.K,
                                 .V = x.V,
                                 .dY = dY,
                                 .state = first,
                                 .d_state = adjoint,
                                 .reuse = gradients,
                                 .workspace = workspace});
      }));
    });
    if (!measured) return bench.SkipWithError("the system does not tell the peak");
    peak = std::max(peak, *measured);
  }
  bench.counters["MiB"] = peak;
  enter({name, peak, text("%.1f MiB", peak), "at most 256 MiB", peak <= 256, ""});
}
BENCHMARK(peak_memory_of_gradients)->Iterations(1)->UseManualTime()->Unit(benchmark::kMillisecond);

}  // namespace
