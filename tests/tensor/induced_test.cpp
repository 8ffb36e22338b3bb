// Sym^P(A): the dense matrix against Jᵀ A^{⊗P} J, the laws of a functor, and the identities of the papers as rules of
// types; the permanent, of which its entries are made, against the sum over permutations.
#include <algorithm>
#include <cmath>
#include <concepts>
#include <numeric>
#include <tuple>
#include <vector>

#include <Eigen/SVD>

#include <sympow/rotation/block_rotation.hpp>
#include <sympow/rotation/conformal.hpp>
#include <sympow/tensor/induced.hpp>
#include <sympow/tensor/tensor_power.hpp>

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

double summed_over_permutations(const MatrixXd& a) {
  std::vector<Index> sigma(static_cast<std::size_t>(a.rows()));
  std::iota(sigma.begin(), sigma.end(), Index(0));
  double sum = 0;
  do {
    double term = 1;
    for (Index i = 0; i < a.rows(); ++i) term *= a(i, sigma[static_cast<std::size_t>(i)]);
    sum += term;
  } while (std::ranges::next_permutation(sigma).found);
  return sum;
}

template <class T>
constexpr bool is_power_gram = false;
template <class X, class Y>
constexpr bool is_power_gram<LazyExpression<detail::PowerGram<X, Y>>> = true;

template <class T, int P>
constexpr bool is_induced = false;
template <class A, int P>
constexpr bool is_induced<Induced<P, A>, P> = true;

template <class T>
constexpr bool is_product = false;
template <class A, class B, int Option>
constexpr bool is_product<const Eigen::Product<A, B, Option>> = true;

using Rotation = BlockRotation<double>;

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

// ---- what expressions turn into ----

TEST_CASE("φ(x)·φ(y) becomes (x·y)^P, also of two rotated vectors", "[tensor]") {
  test::Random random(1);
  const VectorXd x = random.vector(4), y = random.vector(4);
  const Rotation R{VectorXd(random.vector(2))};
  static_assert(std::same_as<decltype(symmetric_power<3>(x).dot(symmetric_power<3>(y))), double>);
  REQUIRE(symmetric_power<3>(x).dot(symmetric_power<3>(y)) == integer_power(x.dot(y), 3));
  REQUIRE(symmetric_power<3>(x).dot(symmetric_power(y, 3)) == integer_power(x.dot(y), 3));
  REQUIRE(symmetric_power<3>(x).squaredNorm() == integer_power(x.squaredNorm(), 3));
  REQUIRE(symmetric_power<3>(x).norm() == integer_power(x.norm(), 3));
  REQUIRE(tensor_power<3>(x).dot(tensor_power<3>(y)) == integer_power(x.dot(y), 3));
  REQUIRE(symmetric_power<4>(R * x).dot(symmetric_power<4>(R * y)) == integer_power(x.dot(y), 4));
  REQUIRE((induced<4>(R) * symmetric_power<4>(x)).norm() == integer_power(x.norm(), 4));
}

TEST_CASE("φ(X)ᵀ φ(Y) becomes the power of XᵀY, however it is written", "[tensor]") {
  test::Random random(2);
  const VectorXd x = random.vector(4), y = random.vector(4);
  const MatrixXd X = random.matrix(4, 3), Y = random.matrix(4, 2);
  auto left = symmetric_power<3>(X);
  const auto constant = symmetric_power<3>(X);
  const auto right = symmetric_power<3>(Y);
  static_assert(is_power_gram<decltype(symmetric_power<3>(X).transpose() * symmetric_power<3>(Y))>);
  static_assert(is_power_gram<decltype(symmetric_power<3>(MatrixXd()).transpose() * symmetric_power<3>(MatrixXd()))>);
  static_assert(is_power_gram<decltype(symmetric_power<3>(X).adjoint() * symmetric_power<3>(Y))>);
  static_assert(is_power_gram<decltype(symmetric_power(X, 3).transpose() * symmetric_power<3>(Y))>);
  static_assert(is_power_gram<decltype(left.transpose() * right)> &&
                is_power_gram<decltype(constant.transpose() * right)>);
  static_assert(is_power_gram<decltype(tensor_power<3>(X).transpose() * tensor_power<3>(Y))>);
  static_assert(is_power_gram<decltype(symmetric_power<3>(x).transpose() * symmetric_power<3>(Y))>);
  static_assert(
      is_product<decltype(tensor_power<1>(X).transpose() * symmetric_power<1>(Y))>);  // no rule across the two
  static_assert(is_product<decltype(symmetric_power<3>(X) * symmetric_power<3>(Y).transpose())>);  // the outer product

  const MatrixXd phi = symmetric_power<3>(X), psi = symmetric_power<3>(Y), expected = phi.transpose() * psi;
  // Dot products of 4 entries to the third power on one side, D = 20 terms on the other, each of a few roundings.
  const double bound = 200 * unit<double> * std::pow(X.norm() * Y.norm(), 3);
  REQUIRE(distance((left.transpose() * right).eval(), expected) <= bound);
  REQUIRE(distance((symmetric_power(X, 3).transpose() * right).eval(), expected) <= bound);
  REQUIRE(distance((tensor_power<3>(X).transpose() * tensor_power<3>(Y)).eval(), expected) <= bound);
  const double number = symmetric_power<3>(x).transpose() * symmetric_power<3>(y);
  REQUIRE(std::abs(number - std::pow(x.dot(y), 3)) <= 200 * unit<double> * std::pow(x.norm() * y.norm(), 3));
}

TEST_CASE("Sym(A) φ(x) becomes φ(A x); products, transposes and determinants of induced maps are induced", "[tensor]") {
  test::Random random(3);
  const VectorXd x = random.vector(4);
  const MatrixXd A = random.matrix(4, 4), B = random.matrix(4, 4), X = random.matrix(4, 3);
  const Rotation R{VectorXd(random.vector(2))}, Q{VectorXd(random.vector(2))};
  static_assert(is_symmetric_power<decltype(induced<3>(A) * symmetric_power<3>(x))>);
  static_assert(is_symmetric_power<decltype(induced<3>(MatrixXd()) * symmetric_power<3>(VectorXd()))>);
  static_assert(is_symmetric_power<decltype(induced<3>(A * B) * symmetric_power<3>(X))>);
  static_assert(is_symmetric_power<decltype(induced<3>(R) * symmetric_power<3>(x))>);
  static_assert(is_symmetric_power<decltype(induced<3>(conformal(2., R)) * symmetric_power<3>(x))>);
  static_assert(is_symmetric_power<decltype(induced<3>(R) * (induced<3>(A) * symmetric_power<3>(x)))>);
  static_assert(is_induced<decltype(induced<3>(A) * induced<3>(B)), 3>);
  static_assert(is_induced<decltype(induced<3>(A) * induced<3>(R)), 3>);
  static_assert(is_induced<decltype(induced<3>(R) * induced<3>(A)), 3>);
  static_assert(std::same_as<decltype(induced<3>(R) * induced<3>(Q)), Induced<3, Rotation>>);
  static_assert(is_induced<decltype(induced<3>(A).transpose()), 3>);
  static_assert(std::same_as<decltype(induced<3>(R).transpose()), Induced<3, Rotation>>);
  static_assert(std::same_as<decltype(induced<3>(A).determinant()), double>);

  REQUIRE(induced<3>(A).determinant() == integer_power(A.determinant(), 15));  // C(6, 4)
  const MatrixXd moved = induced<3>(R) * (induced<3>(A) * symmetric_power<3>(X)), dense = MatrixXd(R) * A;
  REQUIRE(distance(moved, test::defined_induced(dense, 3).cast<double>() * MatrixXd(symmetric_power<3>(X))) <=
          200 * unit<double> * std::pow(A.norm() * X.norm(), 3));
}

TEST_CASE("products, transposes and powers of rotations are rotations, of conformal maps conformal", "[tensor]") {
  using Map = Conformal<Rotation>;
  const Rotation R{VectorXd::Ones(2)};
  const Map T = conformal(1.5, R);
  static_assert(std::same_as<decltype(R * R), Rotation> && std::same_as<decltype(R * R * R), Rotation>);
  static_assert(std::same_as<decltype(R.transpose()), Rotation> && std::same_as<decltype(R.pow(.5)), Rotation>);
  static_assert(std::same_as<decltype(T * T), Map> && std::same_as<decltype(T.transpose()), Map>);
  static_assert(std::same_as<decltype(T.inverse()), Map> && std::same_as<decltype(T.pow(2)), Map>);
  static_assert(!detail::Orthogonal<Map>);
  REQUIRE((T * T).scale() == 2.25);
  REQUIRE((T * T).rotation() == R * R);
}

// ---- the permanent ----

TEST_CASE("the permanent is the sum over permutations", "[tensor]") {
  const auto seed = GENERATE(1u, 2u, 3u);
  const Index n = GENERATE(0, 1, 2, 3, 4, 5, 6, 7);
  CAPTURE(seed, n);
  const MatrixXd a = test::Random(seed).matrix(n, n);
  // n! terms of n factors on one side, n sums of up to n terms on the other; the absolute values sum to per |a|.
  const double bound = static_cast<double>(factorial(n) + n + 2 * n * n) * unit<double> * permanent(a.cwiseAbs());
  REQUIRE(std::abs(permanent(a) - summed_over_permutations(a)) <= bound);
}

TEST_CASE("the permanent is exact on small whole numbers, up to 20 rows", "[tensor]") {
  for (Index n = 0; n <= 20; n += 4) {
    CAPTURE(n);
    REQUIRE(permanent(MatrixXd::Identity(n, n)) == 1);
  }
  for (Index n = 1; n <= 18; ++n) {
    CAPTURE(n);
    REQUIRE(permanent(MatrixXd::Ones(n, n)) == static_cast<double>(factorial(n)));  // below 2^53
  }
  Eigen::Matrix2i a;
  a << 1, 2, 3, 4;
  REQUIRE(permanent(a) == 10);
  REQUIRE(permanent(a * a) == 7 * 22 + 10 * 15);  // an expression
}

TEST_CASE("the permanent of a rectangular or large matrix is refused", "[tensor]") {
  REQUIRE_THROWS_AS(permanent(MatrixXd::Ones(2, 3)), ShapeMismatch);
  REQUIRE_THROWS_WITH(permanent(MatrixXd::Ones(2, 3)), contains("columns of the matrix is 3, must be 2"));
  REQUIRE_THROWS_WITH(permanent(MatrixXd::Ones(21, 21)), contains("21 rows, must be at most 20"));
}
