// R(θ) against its dense matrix: both pairings, the group laws, powers, the reduction of angles, and R x as an
// expression.
#include <cmath>
#include <numbers>
#include <vector>

#include <sympow/rotation/block_rotation.hpp>

#include "catch.hpp"
#include "definition.hpp"
#include "distance.hpp"
#include "random.hpp"

using namespace sympow;
using Eigen::MatrixXd, Eigen::VectorXd, Eigen::RowVectorXd;
using sympow::test::contains, sympow::test::unit, sympow::test::distance, sympow::test::Exact;

namespace {

constexpr double pi = std::numbers::pi;

/// diag(R_2(k θ_1), …) in the order of coordinates that the pairing asks for.
Matrix<Exact> defined_rotation(const VectorXd& theta, Pairing pairing, Exact k = 1) {
  const Index n = theta.size();
  Matrix<Exact> dense = Matrix<Exact>::Zero(2 * n, 2 * n);
  for (Index j = 0; j < n; ++j) {
    const Index first = pairing == Pairing::interleaved ? 2 * j : j,
                second = pairing == Pairing::interleaved ? first + 1 : j + n;
    const Exact angle = k * static_cast<Exact>(theta[j]);
    dense(first, first) = dense(second, second) = std::cos(angle);
    dense(second, first) = std::sin(angle);
    dense(first, second) = -std::sin(angle);
  }
  return dense;
}

/// An angle that is rounded once and reduced by the rounded 2π is off by less than 2u |angle| + 4u; then a cosine.
template <class Scalar>
Exact entry_bound(double largest_angle) {
  return 2 * unit<Scalar> + (2 * largest_angle + 6) * unit<double>;
}

template <class Scalar>
void require_close(const BlockRotation<Scalar>& R, const Matrix<Exact>& expected, double largest_angle) {
  REQUIRE(distance(R.toDenseMatrix().template cast<Exact>(), expected) <= entry_bound<Scalar>(largest_angle));
}

}  // namespace

TEMPLATE_TEST_CASE("a rotation is its dense matrix, in both pairings", "[rotation]", float, double) {
  const auto pairing = GENERATE(Pairing::interleaved, Pairing::half_split);
  const auto seed = GENERATE(1u, 2u);
  const Index d = GENERATE(0, 2, 4, 10);
  CAPTURE(seed, d);
  test::Random random(seed);
  const VectorXd theta = 3 * random.vector(d / 2);
  const BlockRotation<TestType> R(theta, pairing);
  const Matrix<Exact> dense = defined_rotation(theta, pairing);
  const double largest = theta.size() == 0 ? 0 : theta.cwiseAbs().maxCoeff();
  REQUIRE(R.rows() == d);
  REQUIRE(R.cols() == d);
  REQUIRE(R.pairing() == pairing);
  require_close(R, dense, largest);
  require_close(R.transpose(), dense.transpose(), largest);
  require_close(R.inverse(), dense.transpose(), largest);
  REQUIRE(R.determinant() == 1);

  const auto x = random.matrix<TestType>(d, 3);
  const Matrix<TestType> y = R * x;
  // Two products and a sum of entries that are off by entry_bound.
  const Exact bound = d == 0 ? 0 : 2 * (entry_bound<TestType>(largest) + 2 * unit<TestType>)*x.cwiseAbs().maxCoeff();
  REQUIRE(distance(y.template cast<Exact>(), dense * x.template cast<Exact>()) <= bound);
}

TEMPLATE_TEST_CASE("batches turn in place wherever their entries lie", "[rotation]", float, double) {
  using Batch = Matrix<TestType>;
  Random random(3);
  const double u = static_cast<double>(std::numeric_limits<TestType>::epsilon());
  for (const Pairing pairing : {Pairing::interleaved, Pairing::half_split})
    for (const Index d : {2, 6, 14, 16, 18, 34, 64, 66}) {
      CAPTURE(d, static_cast<int>(pairing));
      const BlockRotation<TestType> R(random.vector(d / 2), pairing);
      const Batch X = random.matrix<TestType>(d, 5), expected = R.toDenseMatrix() * X;
      const auto is_expected = [&](const auto& turned) {
        return (turned - expected).cwiseAbs().maxCoeff() <= 8 * u * X.cwiseAbs().maxCoeff();
      };
      Batch whole = X, large = Batch::Constant(d + 3, 9, 7);
      R.apply_in_place(whole);
      REQUIRE(is_expected(whole));
      large.block(1, 2, d, 5) = X;  // at an odd address
      R.apply_in_place(large.block(1, 2, d, 5));
      REQUIRE(is_expected(large.block(1, 2, d, 5)));
      large.block(1, 2, d, 5).setConstant(7);
      REQUIRE((large.array() == 7).all());  // and nothing beside it
      Eigen::Matrix<TestType, Dynamic, Dynamic, Eigen::RowMajor> rows = X;
      R.apply_in_place(rows);
      REQUIRE(is_expected(rows));
      Batch apart = Batch::Zero(2 * d, 5);
      Eigen::Map<Batch, 0, Eigen::Stride<Dynamic, 2>> every_second(apart.data(), d, 5, {2 * d, 2});
      every_second = X;
      R.apply_in_place(every_second);
      REQUIRE(is_expected(every_second));
    }
}

TEST_CASE("the pair (1, 0) turns towards (0, 1), where the pairing puts it", "[rotation]") {
  VectorXd theta(2);
  theta << pi / 2, 0;
  const VectorXd x = VectorXd::Unit(4, 0);
  const VectorXd interleaved = BlockRotation<double>(theta) * x;
  const VectorXd half_split = BlockRotation<double>(theta, Pairing::half_split) * x;
  REQUIRE(distance(interleaved, VectorXd::Unit(4, 1)) <= unit<double>);  // cos(π/2) of the rounded π
  REQUIRE(distance(half_split, VectorXd::Unit(4, 2)) <= unit<double>);
  REQUIRE(BlockRotation(theta).pairing() == Pairing::interleaved);
}

TEST_CASE("rotations form a commutative group by their angles", "[rotation]") {
  const auto pairing = GENERATE(Pairing::interleaved, Pairing::half_split);
  const auto seed = GENERATE(1u, 2u, 3u);
  CAPTURE(seed);
  test::Random random(seed);
  const VectorXd a = random.vector(3), b = random.vector(3), c = random.vector(3);
  const BlockRotation<double> A(a, pairing), B(b, pairing), C(c, pairing), one(VectorXd::Zero(3), pairing);
  const auto exact = [&](const VectorXd& theta) { return defined_rotation(theta, pairing); };
  require_close(A * B, exact(a) * exact(b), 10);
  REQUIRE((A * B).pairing() == pairing);
  REQUIRE(A * B == B * A);
  require_close((A * B) * C, exact(a) * exact(b) * exact(c), 10);
  REQUIRE(A * one == A);
  REQUIRE(A * A.inverse() == one);
  REQUIRE(A.inverse().pairing() == pairing);
  REQUIRE(one.toDenseMatrix() == MatrixXd::Identity(6, 6));
}

TEMPLATE_TEST_CASE("powers turn k times, for large, negative and fractional k", "[rotation]", float, double) {
  const auto pairing = GENERATE(Pairing::interleaved, Pairing::half_split);
  const double k = GENERATE(0., 1., 2., -1., 1000., -1000., 1e6, .5, -2.25, 1e-3);
  const auto seed = GENERATE(1u, 2u);
  CAPTURE(seed, k);
  const VectorXd theta = test::Random(seed).vector(4).cwiseMin(3.).cwiseMax(-3.);
  const BlockRotation<TestType> R(theta, pairing);
  require_close(R.pow(k), defined_rotation(theta, pairing, k), 3 * std::abs(k));
  REQUIRE(R.pow(k).pairing() == pairing);
}

TEST_CASE("half a power squares to the whole", "[rotation]") {
  const BlockRotation<double> far(VectorXd::Constant(3, 4)), half = far.pow(.5);
  REQUIRE(distance((half * half).toDenseMatrix(), far.toDenseMatrix()) <= 16 * unit<double>);
  REQUIRE(std::abs(half.angles()[0] - (2 - pi)) <= 8 * unit<double>);  // half of the angle in [-π, π]
  const BlockRotation from_float(Eigen::Vector2f(1, 2));
  static_assert(std::same_as<decltype(from_float), const BlockRotation<float>>);
  REQUIRE(from_float.angles() == Eigen::Vector2d(1, 2));
}

TEST_CASE("angles are kept in [-π, π] and mean the same", "[rotation]") {
  const auto seed = GENERATE(1u, 2u);
  CAPTURE(seed);
  test::Random random(seed);
  for (int trial = 0; trial < 300; ++trial) {
    const double angle = random.uniform(-1e4, 1e4), reduced = reduced_angle(angle);
    CAPTURE(angle);
    REQUIRE(std::abs(reduced) <= pi);
    // Reduction by the rounded 2π: off by |angle| u/2 at most, the sine by no more.
    REQUIRE(std::abs(std::sin(reduced) - std::sin(angle)) <= (std::abs(angle) + 4) * unit<double>);
    REQUIRE(std::abs(std::cos(reduced) - std::cos(angle)) <= (std::abs(angle) + 4) * unit<double>);
    REQUIRE(BlockRotation<double>(VectorXd::Constant(1, angle)).angles()[0] == reduced);
    REQUIRE(reduced_angle(reduced) == reduced);
    REQUIRE(reduced_angle(-angle) == -reduced);
  }
  REQUIRE(reduced_angle(2 * pi) == 0);
  REQUIRE(reduced_angle(.25) == .25);
}

TEST_CASE("equality asks for the same angles and pairing", "[rotation]") {
  const VectorXd theta = test::Random(1).vector(2);
  VectorXd other = theta;
  other[1] = std::nextafter(other[1], 10.);
  const BlockRotation<double> R(theta);
  REQUIRE(R == BlockRotation<double>(theta));
  REQUIRE(R != BlockRotation<double>(other));
  REQUIRE(R != BlockRotation<double>(theta, Pairing::half_split));
  REQUIRE(R != BlockRotation<double>(theta.head(1)));
}

TEST_CASE("rotations that do not fit are refused by name", "[rotation]") {
  const BlockRotation<double> R(VectorXd::Ones(2)), larger(VectorXd::Ones(3)),
      split(VectorXd::Ones(2), Pairing::half_split);
  REQUIRE_THROWS_AS(R * larger, ShapeMismatch);
  REQUIRE_THROWS_WITH(R * larger, contains("angles of the right rotation is 3, must be 2"));
  REQUIRE_THROWS_AS(R * split, ShapeMismatch);
  REQUIRE_THROWS_WITH(R * split, contains("different pairing"));
  REQUIRE_THROWS_AS(R * VectorXd::Ones(3), ShapeMismatch);
  REQUIRE_THROWS_WITH(R * VectorXd::Ones(3), contains("rows of the right factor is 3, must be 4"));
  REQUIRE_THROWS_AS(VectorXd::Ones(3).transpose() * R, ShapeMismatch);
  MatrixXd odd = MatrixXd::Ones(5, 2);
  REQUIRE_THROWS_AS(R.apply_in_place(odd), ShapeMismatch);
  REQUIRE_THROWS_WITH(R.apply_in_place(odd.topRows(3)), contains("rows of the batch is 3, must be 4"));
}

// What LinearOperator does with any operator is a test of core; here is what a rotation reads and writes itself.
TEST_CASE("R x is an expression: aliasing, sums, lifetimes, strides and both sides", "[rotation]") {
  const BlockRotation<double> R{VectorXd(test::Random(1).vector(3)),
                                GENERATE(Pairing::interleaved, Pairing::half_split)};
  const MatrixXd dense = R, batch = test::Random(4).matrix(6, 4);
  const VectorXd x = test::Random(2).vector(6), y = test::Random(3).vector(6);
  // Two products and a sum on either side.
  const double bound = 6 * unit<double> * std::max(x.cwiseAbs().maxCoeff(), batch.cwiseAbs().maxCoeff());
  VectorXd z = x;
  z = R * z;
  REQUIRE(distance(z, dense * x) <= bound);
  z = x;
  z = y + R * z.reverse();
  REQUIRE(distance(z, y + dense * x.reverse()) <= 2 * bound);
  z = y;
  z.noalias() += R * x;
  z.noalias() -= R * y;
  REQUIRE(distance(z, y + dense * x - dense * y) <= 4 * bound);
  MatrixXd a = MatrixXd::Constant(9, 8, 7);
  a.block(2, 1, 6, 4) = batch;
  a.block(2, 2, 6, 3) = R * a.block(2, 1, 6, 3);
  REQUIRE(distance(a.block(2, 2, 6, 3), dense * batch.leftCols(3)) <= bound);
  REQUIRE((a.array() == 7).count() == 72 - 24);
  const Eigen::Matrix<double, Dynamic, Dynamic, Eigen::RowMajor> rows = R * batch;
  REQUIRE(distance(rows, dense * batch) <= bound);
  const RowVectorXd row = x.transpose() * R;
  REQUIRE(distance(row, x.transpose() * dense) <= bound);
  MatrixXd own = batch.transpose();
  own.row(1) = own.row(1) * R;
  REQUIRE(distance(own.row(1), batch.col(1).transpose() * dense) <= bound);
  const Eigen::Matrix<double, 6, 1> fixed = x;
  static_assert(decltype(R * fixed)::ColsAtCompileTime == 1);
  REQUIRE((R * fixed).eval() == (R * x).eval());

  const auto scaled = 2.0 * (R.pow(2) * VectorXd(x));
  const auto nested = R.pow(2) * (R.pow(3) * VectorXd(x));
  const std::vector<VectorXd> churn(64, VectorXd::Constant(6, 99));
  REQUIRE(distance(scaled.eval(), 2 * dense * dense * x) <= 8 * bound);
  REQUIRE(distance(nested.eval(), R.pow(5).toDenseMatrix() * x) <= 16 * bound);  // angles up to 3π
}

TEST_CASE("lengths and the inner products of images under one rotation are kept without turning", "[rotation]") {
  const BlockRotation<double> R{VectorXd(test::Random(1).vector(3)),
                                GENERATE(Pairing::interleaved, Pairing::half_split)};
  const BlockRotation<double> same = R, other = R.pow(2);
  const MatrixXd dense = R;
  const VectorXd x = test::Random(2).vector(6), y = test::Random(3).vector(6);
  REQUIRE((R * x).norm() == x.norm());
  REQUIRE((R * x).squaredNorm() == x.squaredNorm());
  REQUIRE((R * x).dot(same * y) == x.dot(y));
  REQUIRE((R * x).dot(R.pow(1) * y) == x.dot(y));
  // Different rotations are evaluated: six terms of two turned entries each.
  const double bound = (6 + 12) * unit<double> * x.norm() * y.norm();
  REQUIRE(std::abs((R * x).dot(other * y) - (dense * x).dot(other.toDenseMatrix() * y)) <= bound);
  REQUIRE(std::abs((R * x).dot(y) - (dense * x).dot(y)) <= bound);
}
