// Reproducible random inputs for propositions, tests and examples.
#pragma once

#include <Eigen/LU>
#include <Eigen/QR>
#include <cstdint>
#include <random>

#include <sympow/core/concepts.hpp>

namespace sympow::verify {

/// Seeded source of matrices; the same seed gives the same numbers in float and in double, up to rounding.
class Random {
 public:
  explicit Random(std::uint64_t seed) : engine_(seed) {}

  [[nodiscard]] double normal() { return normal_(engine_); }
  [[nodiscard]] double uniform(double low, double high) { return std::uniform_real_distribution<>(low, high)(engine_); }
  [[nodiscard]] Index integer(Index low, Index high) { return std::uniform_int_distribution<Index>(low, high)(engine_); }
  [[nodiscard]] std::mt19937_64& engine() { return engine_; }

  /// Independent standard normal entries.
  template <class Scalar>
  [[nodiscard]] Matrix<Scalar> matrix(Index rows, Index cols) {
    return Matrix<double>::NullaryExpr(rows, cols, [this] { return normal(); }).template cast<Scalar>();
  }
  template <class Scalar>
  [[nodiscard]] Vector<Scalar> vector(Index size) {
    return matrix<Scalar>(size, 1);
  }

  /// A rotation (determinant 1) drawn by Haar measure: QR with the signs of R's diagonal moved into Q.
  template <class Scalar>
  [[nodiscard]] Matrix<Scalar> rotation(Index d) {
    const Eigen::HouseholderQR<Matrix<double>> qr(matrix<double>(d, d));
    Matrix<double> q = qr.householderQ();
    for (Index i = 0; i < d; ++i)
      if (qr.matrixQR()(i, i) < 0) q.col(i) *= -1;
    if (q.determinant() < 0) q.col(0) *= -1;
    return q.template cast<Scalar>();
  }

 private:
  std::mt19937_64 engine_;
  std::normal_distribution<double> normal_;
};

}  // namespace sympow::verify
