// Dense algebra that is compiled once: against Eigen, on empty, wide and tall matrices and at the ends of the type.
#include <sympow/simd/linear_algebra.hpp>

#include <cmath>
#include <limits>

#include "catch.hpp"
#include "random.hpp"

using namespace sympow;
using sympow::test::Random;

TEST_CASE("products, solutions and determinants are those of Eigen", "[core]") {
  Random random(1);
  for (const Index n : {1, 2, 7, 33}) {
    const Matrix<double> A = random.matrix(n, n), B = random.matrix(n, n + 2);
    const double scale = static_cast<double>(n) * 1e-14;
    CHECK((detail::times(A.transpose(), B) - A.transpose() * B).norm() <= scale * A.norm() * B.norm());
    const detail::Factored<double> factored(A);
    CHECK((A * factored.solve(B) - B).norm() <= scale * A.norm() * factored.solve(B).norm());
    CHECK((A.transpose() * factored.solve_transposed(B) - B).norm() <=
          scale * A.norm() * factored.solve_transposed(B).norm());
    CHECK(std::abs(factored.determinant() - A.determinant()) <= 1e-10 * std::abs(A.determinant()));
    CHECK(factored.size() == n);
  }
}

TEST_CASE("singular values of square, wide and tall matrices, small ones as exact as large ones", "[core]") {
  Random random(2);
  const Eigen::Vector3d exact(3, 1, 1e-9);
  for (const Index other : {3, 4, 50, 2000}) {
    const Matrix<double> U = random.rotation(3), V = random.matrix(other, 3).householderQr().householderQ() *
                                                     Matrix<double>::Identity(other, 3);
    const Matrix<double> A = U * exact.asDiagonal() * V.transpose();
    for (const Matrix<double>& x : {A, Matrix<double>(A.transpose())}) {
      const Vector<double> values = detail::singular_values(x);
      REQUIRE(values.size() == 3);
      CHECK((values - exact).cwiseAbs().maxCoeff() <= 1e-14);
    }
  }
  CHECK(detail::singular_values(Matrix<double>(0, 4)).size() == 0);
}

TEST_CASE("what is not finite has no singular values", "[core]") {
  for (const double bad : {std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()})
    for (const Index cols : {2, 3, 5}) {
      Matrix<double> A = Matrix<double>::Ones(3, cols);
      A(1, 1) = bad;
      const Vector<double> values = detail::singular_values(A);
      REQUIRE(values.size() == std::min<Index>(3, cols));
      CHECK(values.array().isNaN().all());
    }
  Matrix<double> A = Matrix<double>::Ones(3, 3);
  A(2, 0) = std::numeric_limits<double>::infinity();
  CHECK(detail::SquareSvd<double>(A).U.array().isNaN().all());
}

TEST_CASE("norms at the ends of the type", "[core]") {
  const Vector<double> large = Vector<double>::Constant(4, 1e300), small = Vector<double>::Constant(4, 1e-300);
  CHECK(std::abs(detail::stable_norm(large.data(), 4) / 2e300 - 1) <= 1e-15);
  CHECK(std::abs(detail::stable_norm(small.data(), 4) / 2e-300 - 1) <= 1e-15);
  CHECK(detail::stable_norm(large.data(), 0) == 0);
}
