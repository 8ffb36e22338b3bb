// The forms against the core's peak or the rate of Eigen's own product, and what moves memory against moving it. Gate,
// learned rotary, normaliser and contract are on. The last argument of every benchmark is its bar in per cent.
#include "sequences.hpp"

using namespace sympow;
using namespace sympow::bench;

namespace {

double bar_of(const benchmark::State& bench, std::size_t argument) {
  return static_cast<double>(bench.range(argument)) / 100;
}

// Counts 4 D (e + 1) a token and the causal half of the chunk.
template <int P>
void chunked_form(benchmark::State& bench) {
  ConformalTokens x(bench.range(0), bench.range(1));
  const SymmetricPower<P> feature;
  const auto form = [&](Index chunk) {
    State<float, SymmetricPower<P>> state(x.d, x.e);
    chunked(feature, x.transition, x.Q, x.K, x.V, state, x.Y, x.workspace, {.chunk = chunk});
    benchmark::DoNotOptimize(x.Y.data());
  };
  const Times times = in_turns(bench, Product(), [&] { form(0); });
  report_share(bench, text("chunked, P = %d, d = %d, T = %d", P, static_cast<int>(x.d), static_cast<int>(x.T)), times,
               chunked_operations(feature.dimension(x.d), x.d, x.e, x.T), bar_of(bench, 2),
               text("%.2f µs a token; ", 1e6 * times.own / static_cast<double>(x.T)) +
                   chunk_note(own_chunk(feature.dimension(x.d), x.d, x.e), form));
}
BENCHMARK(chunked_form<2>)->Args({64, 16384, 87})->Args({32, 65536, 72})->Iterations(12)->UseManualTime();
BENCHMARK(chunked_form<2>)->Args({128, 8192, 82})->Iterations(8)->UseManualTime();
BENCHMARK(chunked_form<3>)->Args({32, 16384, 82})->Iterations(10)->UseManualTime();
BENCHMARK(chunked_form<4>)->Args({16, 16384, 75})->Iterations(12)->UseManualTime();

// Counts the causal half: T² (d + e).
template <class F>
void attention_form(benchmark::State& bench, const std::string& name, const Options& options) {
  ConformalTokens x(bench.range(0), bench.range(1));
  const Times times = in_turns(bench, Product(), [&] {
    attention(F{}, x.transition, x.Q, x.K, x.V, x.Y, x.workspace, options);
    benchmark::DoNotOptimize(x.Y.data());
  });
  const auto T = static_cast<double>(x.T);
  report_share(bench, name + text(", d = %d, T = %d", static_cast<int>(x.d), static_cast<int>(x.T)), times,
               T * T * static_cast<double>(x.d + x.e), bar_of(bench, 2), text("%.1f ms", 1e3 * times.own));
}

template <int P>
void power_attention(benchmark::State& bench) {
  attention_form<SymmetricPower<P>>(bench, text("attention, P = %d", P), {});
}
BENCHMARK(power_attention<2>)->Args({64, 8192, 80})->Iterations(10)->UseManualTime();
BENCHMARK(power_attention<4>)->Args({64, 8192, 80})->Iterations(10)->UseManualTime();

void softmax_attention(benchmark::State& bench) {
  attention_form<Exponential>(bench, "softmax attention",
                              {.scale = 1 / std::sqrt(static_cast<double>(bench.range(0)))});
}
BENCHMARK(softmax_attention)->Args({64, 8192, 75})->Iterations(10)->UseManualTime();

// One token after the other through one state, each by its own call: the tail is filled and folded on the way. S is
// read as it is or rounded.
template <int P, bool rounds = false>
void decoded_token(benchmark::State& bench) {
  ConformalTokens x(bench.range(0), 512);
  State<float, SymmetricPower<P>> state(x.d, x.e);
  state.round_reads(rounds);
  const auto decode = [&] {
    for (Index t = 0; t < x.T; ++t) {
      const auto step = decay(x.log_gamma.segment(t, 1)) * rotary(x.theta, x.beta.segment(t, 1));
      recurrent(SymmetricPower<P>{}, step, x.Q.col(t), x.K.col(t), x.V.col(t), state, x.Y.col(t), x.workspace);
    }
    benchmark::DoNotOptimize(x.Y.data());
  };
  decode();
  ScaleAndAdd pass(state.bytes() / static_cast<Index>(sizeof(float)));
  Times times = in_turns(
      bench,
      [&] {
        for (Index t = 0; t < x.T; ++t) pass();
      },
      decode);
  times.own /= static_cast<double>(x.T);
  times.reference /= static_cast<double>(x.T);
  bench.counters["µs a token"] = 1e6 * times.own;
  report_ratio(bench,
               text("a decoded token, P = %d, d = %d%s", P, static_cast<int>(x.d), rounds ? ", S read in bf16" : ""),
               times, "a scale-and-add of the state", bar_of(bench, 1),
               text("%.1f µs, reference %.1f µs", 1e6 * times.own, 1e6 * times.reference));
}
BENCHMARK(decoded_token<2>)->Args({64, 90})->Iterations(50)->UseManualTime();
BENCHMARK(decoded_token<2, true>)->Args({64, 90})->Iterations(50)->UseManualTime();

// A token of each of many sequences in one call, against as many of one sequence, which reads S as it is; a state a
// sequence.
template <int P, bool rounds = false>
void decoded_together(benchmark::State& bench) {
  const Index d = bench.range(0), B = bench.range(1);
  using Some = State<float, SymmetricPower<P>>;
  ConformalTokens x(d, B);
  const auto step = decay(x.log_gamma.head(1)) * rotary(x.theta, x.beta.head(1));
  Workspaces<float> workspaces{1};
  const auto decode = [&](std::vector<Some>& states) {
    const Index n = std::ssize(states);
    const auto view = [&](Matrix<float>& all) { return Heads<float>::bhtd(all.data(), n, 1, 1, d); };
    attend(SymmetricPower<P>{}, step, view(x.Q), view(x.K), view(x.V), states, view(x.Y), workspaces,
           {.form = Form::recurrent, .threads = 1});
    benchmark::DoNotOptimize(x.Y.data());
  };
  std::vector<Some> one(1, Some(d, d)), many(static_cast<std::size_t>(B), Some(d, d));
  for (Some& state : many) state.round_reads(rounds);
  const Index steps = one.front().tail() + 1;  // with a fold
  const auto alone = [&] {
    for (Index n = 0; n < steps * B; ++n) decode(one);
  };
  const auto together = [&] {
    for (Index n = 0; n < steps; ++n) decode(many);
  };
  alone(), together();  // until there is something to read
  const Times times = in_turns(bench, alone, together);
  const double tokens = static_cast<double>(steps * B);
  report_ratio(bench,
               text("%d sequences decoded together, P = %d, d = %d%s", static_cast<int>(B), P, static_cast<int>(d),
                    rounds ? ", S read in bf16" : ""),
               times, "one alone", bar_of(bench, 2),
               text("%.1f µs a token, alone %.1f µs", 1e6 * times.own / tokens, 1e6 * times.reference / tokens));
}
BENCHMARK(decoded_together<2>)->Args({64, 64, 100})->Iterations(6)->UseManualTime();
BENCHMARK(decoded_together<2, true>)->Args({64, 64, 100})->Iterations(6)->UseManualTime();

// φ of 256 tokens.
template <int P>
void embedding(benchmark::State& bench) {
  const Index d = bench.range(0), n = 256;
  const Matrix<float> X = Matrix<float>::Random(d, n);
  Matrix<float> phi(symmetric_dimension(d, P), n);
  const Times times = in_turns(
      bench, Copy(phi.size()),
      [&] {
        phi.noalias() = symmetric_power<P>(X);
        benchmark::DoNotOptimize(phi.data());
      },
      20);
  report_bytes(bench, text("embedding of 256 tokens, P = %d, d = %d", P, static_cast<int>(d)), times,
               phi.size() * static_cast<Index>(sizeof(float)), "a copy", bar_of(bench, 1));
}
BENCHMARK(embedding<2>)->Args({64, 50})->Iterations(50)->UseManualTime();
BENCHMARK(embedding<4>)->Args({16, 50})->Iterations(50)->UseManualTime();

}  // namespace
