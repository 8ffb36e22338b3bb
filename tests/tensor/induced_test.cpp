// Sym^P(A): the dense matrix against Jᵀ A^{⊗P} J, and the laws of a functor.
#include <cmath>
#include <tuple>
#include <vector>

#include <Eigen/SVD>

#include <sympow/rotation/block_rotation.hpp>
#include <sympow/rotation/conformal.hpp>
#include <sympow/tensor/induced.hpp>

#include "catch.hpp"
#include "definition.hpp"
#include "distance.hpp"
#include "random.hpp"

using namespace sympow;
using Eigen::MatrixXd, Eigen::VectorXd;
using sympow::test::contains, sympow::test::unit, sympow::test::distance;

namespace {

/// Roundings of an entry of Sym^P(A): P products and P 2^P additions of the permanent, its weight; relative to
/// Sym^P(|A|), whose entries are at most |A|^P in the largest row sum of |A|.
template <int P, class A>
double bound_of(const A& a) {
  const double row_sum = a.rows() == 0 || a.cols() == 0 ? 0 : a.cwiseAbs().rowwise().sum().maxCoeff();
  return (P + P * (1 << P) + 4) * unit<double> * std::sqrt(static_cast<double>(factorial(P))) * std::pow(row_sum, P);
}

template <int P>
void check_dense(const MatrixXd& a) {
  CAPTURE(P);
  const auto lift = induced<P>(a);
  const MatrixXd expected = test::defined_induced(a, P).cast<double>();
  REQUIRE(lift.rows() == symmetric_dimension(a.rows(), P));
  REQUIRE(lift.cols() == symmetric_dimension(a.cols(), P));
  REQUIRE(distance(lift.toDenseMatrix(), expected) <= bound_of<P>(a));
}

template <int P>
void check_laws(const MatrixXd& a, const MatrixXd& b, const MatrixXd& x) {
  CAPTURE(P);
  const MatrixXd lift = test::defined_induced(a, P).cast<double>(), other = test::defined_induced(b, P).cast<double>();
  const MatrixXd phi = symmetric_power<P>(x);

  const MatrixXd image = induced<P>(a) * symmetric_power<P>(x);
  // One product A x, n = cols terms a coordinate, raised to P; relative to what the absolute values give.
  const double norm = std::pow(a.norm() * x.norm(), P);
  REQUIRE(distance(image, lift * phi) <= (P * static_cast<double>(a.cols()) + 10 * P + 20) * unit<double> * norm);

  const double condition = std::pow(a.norm() * b.norm(), P);
  const double n = P * static_cast<double>(a.cols() + 1) + (1 << P) * P + 20;
  REQUIRE(distance((induced<P>(a) * induced<P>(b)).toDenseMatrix(), lift * other) <= n * unit<double> * condition);
  REQUIRE(distance(induced<P>(a).transpose().toDenseMatrix(), lift.transpose()) <= bound_of<P>(a.transpose()));
}

}  // namespace

TEST_CASE("the dense induced map is the compressed tensor power, also of rectangular matrices", "[tensor]") {
  const auto seed = GENERATE(1u, 2u);
  const auto [m, n] =
      GENERATE(std::pair<Index, Index>(3, 3), std::pair<Index, Index>(2, 4), std::pair<Index, Index>(4, 2),
               std::pair<Index, Index>(1, 3), std::pair<Index, Index>(3, 1), std::pair<Index, Index>(0, 2));
  CAPTURE(seed, m, n);
  const MatrixXd a = test::Random(seed).matrix(m, n);
  check_dense<1>(a);
  check_dense<2>(a);
  check_dense<3>(a);
  check_dense<4>(a);
}

TEST_CASE("the induced map acts, multiplies and transposes as the dense one", "[tensor]") {
  const auto seed = GENERATE(1u, 2u, 3u);
  const auto [m, n, k] = GENERATE(std::tuple<Index, Index, Index>(3, 3, 3), std::tuple<Index, Index, Index>(2, 3, 4),
                                  std::tuple<Index, Index, Index>(4, 2, 3));
  CAPTURE(seed, m, n, k);
  test::Random random(seed);
  const MatrixXd a = random.matrix(m, n), b = random.matrix(n, k), x = random.matrix(n, 2);
  check_laws<1>(a, b, x);
  check_laws<2>(a, b, x);
  check_laws<3>(a, b, x);
  check_laws<4>(a, b, x);
}

TEST_CASE("the identity induces the identity, a rotation a rotation", "[tensor]") {
  REQUIRE(induced<3>(MatrixXd::Identity(4, 4)).toDenseMatrix() == MatrixXd::Identity(20, 20));
  const auto seed = GENERATE(1u, 2u);
  CAPTURE(seed);
  const MatrixXd q = test::Random(seed).rotation(4);
  const MatrixXd lift = induced<3>(q).toDenseMatrix();
  // A dot product of 20 entries, each within bound_of, of vectors of length 1; q itself is orthogonal to 4·5 u.
  const double bound = 20 * (2 * bound_of<3>(q) + 40 * unit<double>);
  REQUIRE(distance(lift.transpose() * lift, MatrixXd::Identity(20, 20)) <= bound);
}

TEST_CASE("the determinant of the induced map is a power of the determinant", "[tensor]") {
  const auto seed = GENERATE(1u, 2u, 3u);
  const Index d = GENERATE(1, 2, 3);
  CAPTURE(seed, d);
  const MatrixXd a = test::Random(seed).matrix(d, d);
  const auto check = [&]<int P>(std::integral_constant<int, P>) {
    CAPTURE(P);
    const MatrixXd dense = test::defined_induced(a, P).cast<double>();
    const double expected = dense.determinant();
    // LU with D pivots: relative error about D^2 u times the condition number, here taken from the singular values.
    const VectorXd singular = dense.jacobiSvd().singularValues();
    const double condition = singular[0] / singular[singular.size() - 1];
    const double size = static_cast<double>(dense.rows());
    REQUIRE(std::abs(induced<P>(a).determinant() - expected) <=
            4 * size * size * unit<double> * condition * std::abs(expected));
  };
  check(std::integral_constant<int, 1>{});
  check(std::integral_constant<int, 2>{});
  check(std::integral_constant<int, 3>{});
  check(std::integral_constant<int, 4>{});
  // The exponent itself, without rounding: d = 3, P = 4 has C(6, 3) = 20 factors of det A.
  REQUIRE(induced<4>(2 * MatrixXd::Identity(3, 3)).determinant() == std::ldexp(1., 3 * 20));
}

TEST_CASE("operators induce what their matrices induce", "[tensor]") {
  const auto pairing = GENERATE(Pairing::interleaved, Pairing::half_split);
  test::Random random(1);
  const BlockRotation<double> R(random.vector(2), pairing), Q(random.vector(2), pairing);
  const auto T = conformal(1.5, R), U = conformal(.5, Q);
  const MatrixXd a = random.matrix(4, 4), x = random.matrix(4, 3);
  const MatrixXd dense_r = R, dense_t = T, phi = symmetric_power<3>(x);
  const double scale = 200 * unit<double>;  // three levels of two-term sums each, D = 20 terms in the dense product

  REQUIRE(induced<3>(R).toDenseMatrix() == induced<3>(dense_r).toDenseMatrix());
  REQUIRE(induced<3>(T).toDenseMatrix() == induced<3>(dense_t).toDenseMatrix());
  const MatrixXd turned = induced<3>(R) * symmetric_power<3>(x), moved = induced<3>(T) * symmetric_power<3>(x);
  REQUIRE(distance(turned, induced<3>(dense_r).toDenseMatrix() * phi) <= scale * phi.norm());
  REQUIRE(distance(moved, induced<3>(dense_t).toDenseMatrix() * phi) <= scale * std::pow(1.5, 3) * phi.norm());

  REQUIRE(distance((induced<2>(R) * induced<2>(Q)).toDenseMatrix(), induced<2>(MatrixXd(R * Q)).toDenseMatrix()) == 0);
  REQUIRE(distance((induced<2>(T) * induced<2>(U)).toDenseMatrix(), induced<2>(MatrixXd(T * U)).toDenseMatrix()) == 0);
  REQUIRE(distance((induced<2>(R) * induced<2>(a)).toDenseMatrix(), induced<2>(MatrixXd(R * a)).toDenseMatrix()) == 0);
  REQUIRE(distance((induced<2>(a) * induced<2>(R)).toDenseMatrix(), induced<2>(MatrixXd(a * R)).toDenseMatrix()) == 0);
  REQUIRE(induced<3>(R).transpose().toDenseMatrix() == induced<3>(MatrixXd(R.transpose())).toDenseMatrix());
  REQUIRE(induced<3>(R).determinant() == 1);
  REQUIRE(induced<2>(conformal(2., R)).determinant() == std::ldexp(1., 4 * 5));  // (2^4)^C(5, 4)
}

TEST_CASE("induced maps kept under auto own the temporaries that they were built from", "[tensor]") {
  test::Random random(2);
  const MatrixXd a = random.matrix(3, 3), b = random.matrix(3, 3);
  const VectorXd x = random.vector(3);
  const VectorXd theta = random.vector(2), z = random.vector(4);
  const auto image = induced<2>(MatrixXd(a)) * symmetric_power<2>(VectorXd(x));
  const auto product = induced<2>(MatrixXd(a)) * induced<2>(MatrixXd(b));
  const auto transposed = induced<2>(MatrixXd(a)).transpose();
  const auto turned = induced<2>(BlockRotation<double>(theta)) * symmetric_power<2>(VectorXd(z));
  const std::vector<MatrixXd> churn(64, MatrixXd::Constant(3, 3, 99));
  REQUIRE(image.eval() == VectorXd(symmetric_power<2>(VectorXd(a * x))));
  REQUIRE(product.toDenseMatrix() == induced<2>(MatrixXd(a * b)).toDenseMatrix());
  REQUIRE(transposed.toDenseMatrix() == induced<2>(MatrixXd(a.transpose())).toDenseMatrix());
  REQUIRE(turned.eval() == VectorXd(symmetric_power<2>(VectorXd(BlockRotation<double>(theta) * z))));
}

TEST_CASE("shapes that do not fit are refused when the expression is built", "[tensor]") {
  const MatrixXd a = MatrixXd::Ones(2, 3), b = MatrixXd::Ones(2, 2);
  const VectorXd x = VectorXd::Ones(2);
  const BlockRotation<double> R(VectorXd::Ones(2));
  REQUIRE_THROWS_AS(induced<2>(a) * symmetric_power<2>(x), ShapeMismatch);
  REQUIRE_THROWS_WITH(induced<2>(a) * symmetric_power<2>(x), contains("right factor is 2, must be 3"));
  REQUIRE_THROWS_AS(induced<2>(a) * induced<2>(b), ShapeMismatch);
  REQUIRE_THROWS_AS(induced<2>(R) * symmetric_power<2>(x), ShapeMismatch);
  REQUIRE_THROWS_AS(induced<2>(b) * induced<2>(R), ShapeMismatch);
  REQUIRE_THROWS_AS(induced<2>(a).determinant(), ShapeMismatch);
  REQUIRE_THROWS_WITH(induced<2>(a).determinant(), contains("columns of the matrix is 3, must be 2"));
}
