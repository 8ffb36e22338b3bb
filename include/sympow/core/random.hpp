// Random numbers, vectors and matrices, identical on every machine.
#pragma once

#include <cmath>
#include <cstdint>
#include <numbers>
#include <random>

#include <sympow/core/concepts.hpp>

namespace SYMPOW_NAMESPACE {

/// A seeded source. It avoids the standard distributions, which differ between implementations. Equal seeds give equal
/// numbers in float and double, up to rounding.
class Random {
 public:
  /// A source whose sequence the seed determines.
  explicit Random(std::uint64_t seed) : engine_(seed) {}

  /// Uniform in [0, 1).
  [[nodiscard]] double uniform() { return std::ldexp(static_cast<double>(engine_() >> 11), -53); }

  /// Uniform in [low, high).
  [[nodiscard]] double uniform(double low, double high) { return low + (high - low) * uniform(); }

  /// Uniform in low … high, inclusive; the modulo bias is below (high - low)/2^64.
  [[nodiscard]] Index integer(Index low, Index high) {
    return low + static_cast<Index>(engine_() % (static_cast<std::uint64_t>(high - low) + 1));
  }

  /// Standard normal (Box-Muller).
  [[nodiscard]] double normal() {
    const double radius = std::sqrt(-2 * std::log(1 - uniform()));
    return radius * std::cos(2 * std::numbers::pi * uniform());
  }

  /// Standard normal entries, m × n.
  template <class Scalar = double>
  [[nodiscard]] Matrix<Scalar> matrix(Index m, Index n) {
    Matrix<Scalar> a(m, n);
    for (Index j = 0; j < n; ++j)
      for (Index i = 0; i < m; ++i) a(i, j) = static_cast<Scalar>(normal());
    return a;
  }

  /// Standard normal entries.
  template <class Scalar = double>
  [[nodiscard]] Vector<Scalar> vector(Index n) {
    return matrix<Scalar>(n, 1);
  }

  /// A rotation of R^d, uniform by the Haar measure: a product of d - 1 reflections and one sign for determinant 1. The
  /// k-th reflection moves the first of the last k axes to a uniform direction among them. Source: Diaconis and
  /// Shahshahani (1987).
  template <class Scalar = double>
  [[nodiscard]] Matrix<Scalar> rotation(Index d) {
    Matrix<double> q = Matrix<double>::Identity(d, d);
    for (Index k = 2; k <= d; ++k) {
      Vector<double> w = vector(k).normalized();
      w[0] -= 1;
      w.normalize();
      for (Index j = 0; j < d; ++j) {
        double* const tail = &q(d - k, j);
        double twice_dot = 0;
        for (Index i = 0; i < k; ++i) twice_dot += 2 * w[i] * tail[i];
        for (Index i = 0; i < k; ++i) tail[i] -= twice_dot * w[i];
      }
    }
    if (d > 1 && d % 2 == 0)
      for (Index i = 0; i < d; ++i) q(i, 0) *= -1;
    return q.template cast<Scalar>();
  }

  /// Skew-symmetric with standard normal entries above the diagonal.
  template <class Scalar = double>
  [[nodiscard]] Matrix<Scalar> skew(Index d) {
    const Matrix<Scalar> a = matrix<Scalar>(d, d).template triangularView<Eigen::StrictlyUpper>();
    return a - a.transpose();
  }

 private:
  std::mt19937_64 engine_;
};

}  // namespace SYMPOW_NAMESPACE
