// Rotations of a batch against copying it, and against products by dense matrices.
#include <sympow/core/random.hpp>
#include <sympow/sympow.hpp>

#include "bars.hpp"

using namespace sympow;
using namespace sympow::bench;

namespace {

// R(θ) in place, angles given.
void block_rotation(benchmark::State& bench, Pairing pairing) {
  Matrix<float> X = Matrix<float>::Random(bench.range(0), unless_smoke(bench.range(1), 64));
  const BlockRotation<float> R(rotary_frequencies<float>(X.rows(), 4096), pairing);
  const Times times = in_turns(
      bench, Copy(X.size()),
      [&] {
        R.apply_in_place(X);
        benchmark::DoNotOptimize(X.data());
      },
      10);
  report_bytes(bench,
               text("R(θ) on %d x %d, %s", static_cast<int>(X.rows()), static_cast<int>(X.cols()),
                    pairing == Pairing::interleaved ? "interleaved" : "half-split"),
               times, X.size() * static_cast<Index>(sizeof(float)), "a copy", .7);
}
BENCHMARK_CAPTURE(block_rotation, interleaved, Pairing::interleaved)
    ->Args({64, 256})
    ->Args({64, 4096})
    ->Args({128, 65536})
    ->Iterations(30)
    ->UseManualTime();
BENCHMARK_CAPTURE(block_rotation, half_split, Pairing::half_split)
    ->Args({64, 256})
    ->Args({64, 4096})
    ->Args({128, 65536})
    ->Iterations(30)
    ->UseManualTime();

// A family of two generators that has a basis to turn in.
CommutingGenerators<float> any_family(Index d) {
  Random random(1);
  const Matrix<float> L = random.skew<float>(d);
  return CommutingGenerators<float>({L});
}

// R_STR(r) in the basis of its planes.
void structured_in_block_basis(benchmark::State& bench) {
  Matrix<float> X = Matrix<float>::Random(bench.range(0), unless_smoke(bench.range(1), 64));
  const auto R = any_family(X.rows()).at(Eigen::VectorXd::Constant(1, .1));
  const Times times = in_turns(
      bench, Copy(X.size()),
      [&] {
        R.apply_in_block_basis(X);
        benchmark::DoNotOptimize(X.data());
      },
      10);
  report_bytes(bench, "", times, X.size() * static_cast<Index>(sizeof(float)), "a copy", 0);
}
BENCHMARK(structured_in_block_basis)
    ->Args({64, 256})
    ->Args({64, 4096})
    ->Args({128, 65536})
    ->Iterations(20)
    ->UseManualTime();

// R_STR(r) X against the products by Uᵀ and by U alone.
void structured_with_basis(benchmark::State& bench) {
  const Matrix<float> X = Matrix<float>::Random(bench.range(0), unless_smoke(bench.range(1), 64));
  Matrix<float> Y = X, image = X;
  const auto family = any_family(X.rows());
  const auto R = family.at(Eigen::VectorXd::Constant(1, .1));
  const Matrix<float> U = family.basis();
  const Times times = in_turns(
      bench,
      [&] {
        image.noalias() = U.transpose() * X;
        Y.noalias() = U * image;
        benchmark::DoNotOptimize(Y.data());
      },
      [&] {
        Y.noalias() = R * X;
        benchmark::DoNotOptimize(Y.data());
      },
      10);
  report_ratio(bench, "", times, "two products", 0, "");
}
BENCHMARK(structured_with_basis)->Args({64, 256})->Args({64, 4096})->Args({128, 8192})->Iterations(20)->UseManualTime();

}  // namespace
