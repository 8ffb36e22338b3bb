// Rotations of a batch against copying it and against products by dense matrices: ratios within one process and thread.
#include <sympow/core/random.hpp>
#include <sympow/sympow.hpp>

#include "timing.hpp"

using namespace sympow;
using namespace sympow::bench;

namespace {

// Seconds of copying a batch.
double copy_seconds(const Matrix<float>& X) {
  Matrix<float> copy = X;
  return best_seconds(50, [&] {
    copy = X;
    benchmark::DoNotOptimize(copy.data());
  });
}

// R(θ) in place, angles given. Arguments: d and columns.
void block_rotation(benchmark::State& bench, Pairing pairing) {
  Matrix<float> X = Matrix<float>::Random(bench.range(0), bench.range(1));
  const BlockRotation<float> R(rotary_frequencies<float>(X.rows(), 4096), pairing);
  const double copied = copy_seconds(X), seconds = run(bench, [&] {
                                           R.apply_in_place(X);
                                           benchmark::DoNotOptimize(X.data());
                                         });
  bench.counters["of a copy"] = copied / seconds;
}
BENCHMARK_CAPTURE(block_rotation, interleaved, Pairing::interleaved)
    ->Args({64, 256})
    ->Args({64, 4096})
    ->Args({128, 65536});
BENCHMARK_CAPTURE(block_rotation, half_split, Pairing::half_split)
    ->Args({64, 256})
    ->Args({64, 4096})
    ->Args({128, 65536});

// A family of two generators that has a basis to turn in.
CommutingGenerators<float> any_family(Index d) {
  Random random(1);
  const Matrix<float> L = random.skew<float>(d);
  return CommutingGenerators<float>({L});
}

// R_STR(r) in the basis of its planes.
void structured_in_block_basis(benchmark::State& bench) {
  Matrix<float> X = Matrix<float>::Random(bench.range(0), bench.range(1));
  const auto R = any_family(X.rows()).at(Eigen::VectorXd::Constant(1, .1));
  const double copied = copy_seconds(X), seconds = run(bench, [&] {
                                           R.apply_in_block_basis(X);
                                           benchmark::DoNotOptimize(X.data());
                                         });
  bench.counters["of a copy"] = copied / seconds;
}
BENCHMARK(structured_in_block_basis)->Args({64, 256})->Args({64, 4096})->Args({128, 65536});

// R_STR(r) X against the products by Uᵀ and by U alone.
void structured_with_basis(benchmark::State& bench) {
  const Matrix<float> X = Matrix<float>::Random(bench.range(0), bench.range(1));
  Matrix<float> Y = X, image = X;
  const auto family = any_family(X.rows());
  const auto R = family.at(Eigen::VectorXd::Constant(1, .1));
  const Matrix<float> U = family.basis();
  const double products = best_seconds(50, [&] {
    image.noalias() = U.transpose() * X;
    Y.noalias() = U * image;
    benchmark::DoNotOptimize(Y.data());
  });
  const double seconds = run(bench, [&] {
    Y.noalias() = R * X;
    benchmark::DoNotOptimize(Y.data());
  });
  bench.counters["times two products"] = seconds / products;
}
BENCHMARK(structured_with_basis)->Args({64, 256})->Args({64, 4096})->Args({128, 8192});

}  // namespace
