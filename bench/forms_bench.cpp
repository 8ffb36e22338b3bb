// The forms against the core's peak or the rate of Eigen's own product, and what moves memory against moving it. Gate,
// learned rotary, normaliser and contract are on. The last arguments of every benchmark are its bar in per cent, with
// AVX2 and with AVX-512.
#include "sequences.hpp"

using namespace sympow;
using namespace sympow::bench;

namespace {

double bar_of(const benchmark::State& bench, std::size_t argument) {
  const auto of = [&](std::size_t n) { return static_cast<double>(bench.range(n)) / 100; };
  return Asked{of(argument), of(argument + 1)}.here();
}

// Counts 4 D (e + 1) a token and the causal half of the chunk.
template <int P>
void chunked_form(benchmark::State& bench) {
  ConformalTokens x(bench.range(0), unless_smoke(bench.range(1), 1024));
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
BENCHMARK(chunked_form<2>)->Args({64, 16384, 80, 84})->Args({32, 65536, 68, 67})->Iterations(12)->UseManualTime();
BENCHMARK(chunked_form<2>)->Args({128, 8192, 80, 82})->Iterations(8)->UseManualTime();
BENCHMARK(chunked_form<3>)->Args({32, 16384, 75, 81})->Iterations(10)->UseManualTime();
BENCHMARK(chunked_form<4>)->Args({16, 16384, 62, 68})->Iterations(12)->UseManualTime();

// Counts the causal half: T² (d + e).
template <class F>
void attention_form(benchmark::State& bench, const std::string& name, const Options& options) {
  ConformalTokens x(bench.range(0), unless_smoke(bench.range(1), 128));
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
BENCHMARK(power_attention<2>)->Args({64, 8192, 80, 85})->Iterations(10)->UseManualTime();
BENCHMARK(power_attention<4>)->Args({64, 8192, 80, 85})->Iterations(10)->UseManualTime();

void softmax_attention(benchmark::State& bench) {
  attention_form<Exponential>(bench, "softmax attention",
                              {.scale = 1 / std::sqrt(static_cast<double>(bench.range(0)))});
}
BENCHMARK(softmax_attention)->Args({64, 8192, 70, 75})->Iterations(10)->UseManualTime();

// Numbers of S and Z.
Index numbers_of_state(Index D, Index e) { return D * (e + 1); }

// Bytes that a token reads of a state: S, as it is or rounded, and Z.
Index bytes_read(Index D, Index e, bool rounds) { return D * (e * (rounds ? 2 : 4) + 4); }

// One token after the other through one state, each by its own call: the tail is filled and folded on the way. S is
// read as it is or rounded. Nobody can do without one read of S and Z, nor without the multiply-adds by which a token
// comes into them; those of the read hide behind it.
template <int P, bool rounds = false>
void decoded_token(benchmark::State& bench) {
  ConformalTokens x(bench.range(0), unless_smoke(512, 64));
  State<float, SymmetricPower<P>> state(x.d, x.e);
  state.read_as_bf16(rounds);
  const auto decode = [&] {
    for (Index t = 0; t < x.T; ++t) {
      const auto step = decay(x.log_gamma.segment(t, 1)) * rotary(x.theta, x.beta.segment(t, 1), Pairing::interleaved);
      recurrent(SymmetricPower<P>{}, step, x.Q.col(t), x.K.col(t), x.V.col(t), state, x.Y.col(t), x.workspace);
    }
    benchmark::DoNotOptimize(x.Y.data());
  };
  decode();
  const Index D = symmetric_dimension(x.d, P);
  Read read(bytes_read(D, x.e, rounds) / static_cast<Index>(sizeof(float)));
  Times times = in_turns(
      bench,
      [&] {
        for (Index t = 0; t < x.T; ++t) read();
      },
      decode);
  times.own /= static_cast<double>(x.T);
  times.reference /= static_cast<double>(x.T);
  const double reading = times.reference,
               folding = 2 * static_cast<double>(numbers_of_state(D, x.e)) * times.peak / FmaPeak::operations;
  times.reference += folding;
  bench.counters["µs a token"] = 1e6 * times.own;
  report_ratio(
      bench, text("a decoded token, P = %d, d = %d%s", P, static_cast<int>(x.d), rounds ? ", S read in bf16" : ""),
      times, "a read of S and Z and the multiply-adds of a fold", bar_of(bench, 1),
      text("%.1f µs; the read %.1f µs, the multiply-adds %.1f µs", 1e6 * times.own, 1e6 * reading, 1e6 * folding));
}
BENCHMARK(decoded_token<2>)->Args({64, 90, 90})->Iterations(50)->UseManualTime();
BENCHMARK(decoded_token<2, true>)->Args({64, 90, 90})->Iterations(50)->UseManualTime();

// A token of each of many sequences in one call, a state a sequence, against a plain sum over as many bytes as are read
// of the states.
template <int P, bool rounds = false>
void decoded_together(benchmark::State& bench) {
  const Index d = bench.range(0), B = unless_smoke(bench.range(1), 2);
  using Some = State<float, SymmetricPower<P>>;
  ConformalTokens x(d, B);
  const auto step = decay(x.log_gamma.head(1)) * rotary(x.theta, x.beta.head(1), Pairing::interleaved);
  Workspaces<float> workspaces{1};
  const auto decode = [&](std::vector<Some>& states) {
    const Index n = std::ssize(states);
    const auto view = [&](Matrix<float>& all) { return Heads<float>::bhtd(all.data(), n, 1, 1, d); };
    attend(SymmetricPower<P>{}, step,
           {.Q = view(x.Q),
            .K = view(x.K),
            .V = view(x.V),
            .states = states,
            .Y = view(x.Y),
            .workspaces = workspaces,
            .options = {.form = Form::recurrent, .threads = 1}});
    benchmark::DoNotOptimize(x.Y.data());
  };
  std::vector<Some> many(static_cast<std::size_t>(B), Some(d, d));
  for (Some& state : many) state.read_as_bf16(rounds);
  const Index steps = many.front().tail_capacity() + 1;  // with a fold
  const auto together = [&] {
    for (Index n = 0; n < steps; ++n) decode(many);
  };
  const Index bytes = B * bytes_read(symmetric_dimension(d, P), d, rounds);
  Read read(bytes / static_cast<Index>(sizeof(float)));
  together();  // until there is something to read
  const Times times = in_turns(
      bench,
      [&] {
        for (Index n = 0; n < steps; ++n) read();
      },
      together);
  const double tokens = static_cast<double>(steps * B), all_bytes = static_cast<double>(steps * bytes);
  report_ratio(bench,
               text("%d sequences decoded together, P = %d, d = %d%s", static_cast<int>(B), P, static_cast<int>(d),
                    rounds ? ", S read in bf16" : ""),
               times, "a sum over as much memory", bar_of(bench, 2),
               text("%.1f µs a token; %.1f GB/s, a sum %.1f", 1e6 * times.own / tokens, all_bytes / times.own / 1e9,
                    all_bytes / times.reference / 1e9));
}
BENCHMARK(decoded_together<2>)->Args({64, 64, 85, 85})->Iterations(6)->UseManualTime();
BENCHMARK(decoded_together<2, true>)->Args({64, 64, 85, 85})->Iterations(6)->UseManualTime();

// φ of 256 tokens.
template <int P>
void embedding(benchmark::State& bench) {
  const Index d = bench.range(0), n = unless_smoke(256, 16);
  const Matrix<float> X = Matrix<float>::Random(d, n);
  Matrix<float> phi(symmetric_dimension(d, P), n);
  const Times times = in_turns(
      bench, Copy(phi.size()),
      [&] {
        phi.noalias() = symmetric_power<P>(X);
        benchmark::DoNotOptimize(phi.data());
      },
      20);
  report_bytes(bench, text("embedding of %d tokens, P = %d, d = %d", static_cast<int>(n), P, static_cast<int>(d)),
               times, phi.size() * static_cast<Index>(sizeof(float)), "a copy", bar_of(bench, 1));
}
BENCHMARK(embedding<2>)->Args({64, 50, 50})->Iterations(50)->UseManualTime();
BENCHMARK(embedding<4>)->Args({16, 50, 50})->Iterations(50)->UseManualTime();

}  // namespace
