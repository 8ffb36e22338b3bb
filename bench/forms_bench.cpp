// The forms against the rate of Eigen's own product, and what moves memory against a plain copy: ratios within one process and thread.
#include <sympow/core/random.hpp>
#include <sympow/sympow.hpp>

#include <benchmark/benchmark.h>

#include <cstring>

#include "timing.hpp"

using namespace sympow;
using namespace sympow::bench;

namespace {

// Operations a second of C += A B at 1024³ in float.
double product_rate() {
  static const double rate = [] {
    constexpr Index n = 1024;
    const Matrix<float> A = Matrix<float>::Random(n, n), B = Matrix<float>::Random(n, n);
    Matrix<float> C = Matrix<float>::Zero(n, n);
    const double seconds = best_seconds(8, [&] {
      C.noalias() += A * B;
      benchmark::DoNotOptimize(C.data());
    });
    return 2.0 * n * n * n / seconds;
  }();
  return rate;
}

// A conformal sequence: learned rotary and gates near 1.
struct Sequence {
  Index d, e, T;
  Random random{1};
  Matrix<float> Q = random.matrix<float>(d, T), K = random.matrix<float>(d, T), V = random.matrix<float>(e, T), Y = V;
  Eigen::VectorXd log_gamma = -.01 * random.vector(T).cwiseAbs(), beta = 1 + random.vector(T).array().tanh();
  Eigen::VectorXd theta = rotary_frequencies<double>(d, 4096);
  decltype(decay(log_gamma) * rotary(theta, beta)) transition = decay(log_gamma) * rotary(theta, beta);
  Workspace<float> workspace{};
};

void report(benchmark::State& bench, double operations, double seconds) {
  bench.counters["useful GFLOP/s"] = operations / seconds / 1e9;
  bench.counters["of the product rate"] = operations / seconds / product_rate();
}

// Arguments d = e and T; counts 4 D (e + 1) a token and the causal half of the chunk.
template <int P>
void chunked_form(benchmark::State& bench) {
  Sequence x{.d = bench.range(0), .e = bench.range(0), .T = bench.range(1)};
  const SymmetricPower<P> feature;
  const double seconds = run(bench, [&] {
    State<float, SymmetricPower<P>> state(x.d, x.e);
    chunked(feature, x.transition, x.Q, x.K, x.V, state, x.Y, x.workspace);
    benchmark::DoNotOptimize(x.Y.data());
  });
  const auto D = static_cast<double>(feature.dimension(x.d)), d = static_cast<double>(x.d);
  report(bench,
         static_cast<double>(x.T) *
             (4 * D * (d + 1) + static_cast<double>(detail::chunk_of({}, feature.dimension(x.d))) * 2 * d),
         seconds);
}
BENCHMARK(chunked_form<2>)->Args({32, 4096})->Args({64, 4096})->UseRealTime();
BENCHMARK(chunked_form<4>)->Args({16, 4096})->UseRealTime();

// Counts the causal half: T² (d + e).
template <class F>
void attention_form(benchmark::State& bench) {
  Sequence x{.d = bench.range(0), .e = bench.range(0), .T = bench.range(1)};
  const double seconds = run(bench, [&] {
    attention(F{}, x.transition, x.Q, x.K, x.V, x.Y, x.workspace);
    benchmark::DoNotOptimize(x.Y.data());
  });
  const auto T = static_cast<double>(x.T);
  report(bench, T * T * 2 * static_cast<double>(x.d), seconds);
}
BENCHMARK(attention_form<SymmetricPower<2>>)->Args({64, 4096})->UseRealTime();
BENCHMARK(attention_form<Exponential>)->Args({64, 4096})->UseRealTime();

// One token against a state; the floor is to read S once.
template <int P>
void decoded_token(benchmark::State& bench) {
  Sequence x{.d = bench.range(0), .e = bench.range(0), .T = 1};
  State<float, SymmetricPower<P>> state(x.d, x.e);
  const double seconds = run(bench, [&] {
    recurrent(SymmetricPower<P>{}, x.transition, x.Q, x.K, x.V, state, x.Y, x.workspace);
    benchmark::DoNotOptimize(x.Y.data());
  });
  Matrix<float> S = Matrix<float>::Random(x.e, symmetric_dimension(x.d, P));
  const double in_place = best_seconds(50, [&] {
    S = S * .999f + Matrix<float>::Constant(S.rows(), S.cols(), 1e-3f);
    benchmark::DoNotOptimize(S.data());
  });
  bench.counters["of an in-place scale-and-add"] = in_place / seconds;
}
BENCHMARK(decoded_token<2>)->Args({64})->UseRealTime();

// φ of a batch; the ratio is to copying as many bytes.
template <int P>
void embedding(benchmark::State& bench) {
  const Index d = bench.range(0), n = 256;
  const Matrix<float> X = Matrix<float>::Random(d, n);
  Matrix<float> phi(symmetric_dimension(d, P), n), copy = phi;
  const double seconds = run(bench, [&] {
    phi.noalias() = symmetric_power<P>(X);
    benchmark::DoNotOptimize(phi.data());
  });
  const double copied = best_seconds(50, [&] {
    std::memcpy(copy.data(), phi.data(), static_cast<std::size_t>(phi.size()) * sizeof(float));
    benchmark::DoNotOptimize(copy.data());
  });
  bench.counters["of a copy"] = copied / seconds;
}
BENCHMARK(embedding<2>)->Arg(64)->UseRealTime();
BENCHMARK(embedding<4>)->Arg(16)->UseRealTime();

}  // namespace
