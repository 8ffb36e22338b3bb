// s R: the group laws, what it keeps and what it refuses. Its lift is in the tests of induced maps.
#include <cmath>
#include <limits>

#include <sympow/rotation/block_rotation.hpp>
#include <sympow/rotation/conformal.hpp>

#include "catch.hpp"
#include "distance.hpp"
#include "random.hpp"

using namespace sympow;
using Eigen::MatrixXd, Eigen::RowVectorXd, Eigen::VectorXd;
using sympow::test::contains, sympow::test::unit, sympow::test::distance;

namespace {

struct Example {
  explicit Example(unsigned seed) : random(seed) {}
  test::Random random;
  BlockRotation<double> R{VectorXd(random.vector(2))}, Q{VectorXd(random.vector(2))};
  double s = random.uniform(.2, 3), t = random.uniform(.2, 3);
  Conformal<BlockRotation<double>> T = conformal(s, R), U = conformal(t, Q);
  MatrixXd dense = s * MatrixXd(R), other = t * MatrixXd(Q);
  VectorXd x = random.vector(4), y = random.vector(4);
};

}  // namespace

TEST_CASE("a conformal map is the scaled matrix of its rotation", "[rotation]") {
  const auto seed = GENERATE(1u, 2u, 3u);
  CAPTURE(seed);
  const Example e(seed);
  // A turned entry (two products, a sum) and the scale.
  const double bound = 8 * unit<double> * e.s * e.x.cwiseAbs().maxCoeff();
  REQUIRE(e.T.rows() == 4);
  REQUIRE(e.T.cols() == 4);
  REQUIRE(e.T.scale() == e.s);
  REQUIRE(e.T.rotation() == e.R);
  REQUIRE(distance(e.T.toDenseMatrix(), e.dense) <= unit<double> * e.s);
  REQUIRE(distance((e.T * e.x).eval(), e.dense * e.x) <= bound);
  const RowVectorXd row = e.x.transpose() * e.T;
  REQUIRE(distance(row, e.x.transpose() * e.dense) <= bound);
  VectorXd own = e.x;
  own = e.T * own;
  REQUIRE(own == (e.T * e.x).eval());
}

TEST_CASE("conformal maps form a group", "[rotation]") {
  const auto seed = GENERATE(1u, 2u, 3u);
  CAPTURE(seed);
  const Example e(seed);
  const double size = e.s * e.t;
  // Angles up to 2π off by u each, entries of four products and two sums, the product of the scales.
  REQUIRE(distance((e.T * e.U).toDenseMatrix(), e.dense * e.other) <= 24 * unit<double> * size);
  REQUIRE(distance((e.T * e.T.inverse()).toDenseMatrix(), MatrixXd::Identity(4, 4)) <= 24 * unit<double>);
  REQUIRE(distance(e.T.transpose().toDenseMatrix(), e.dense.transpose()) <= 2 * unit<double> * e.s);
  REQUIRE(distance(e.T.pow(3).toDenseMatrix(), e.dense * e.dense * e.dense) <= 60 * unit<double> * e.s * e.s * e.s);
  REQUIRE(distance((e.T.pow(.5) * e.T.pow(.5)).toDenseMatrix(), e.dense) <= 24 * unit<double> * e.s);
  REQUIRE(distance(e.T.pow(-1).toDenseMatrix(), e.T.inverse().toDenseMatrix()) <= 4 * unit<double> / e.s);
  // LU of a 4 × 4 matrix of condition 1.
  REQUIRE(std::abs(e.T.determinant() - e.dense.determinant()) <= 64 * unit<double> * std::pow(e.s, 4));
}

TEST_CASE("a conformal map keeps angles and scales lengths", "[rotation]") {
  const auto seed = GENERATE(1u, 2u, 3u);
  CAPTURE(seed);
  const Example e(seed);
  const VectorXd a = e.T * e.x, b = e.T * e.y;
  const double n = 24 * unit<double>;  // norms and products of four entries, each turned and scaled
  REQUIRE(std::abs(a.norm() - e.s * e.x.norm()) <= n * e.s * e.x.norm());
  REQUIRE(std::abs((e.T * e.x).norm() - e.s * e.x.norm()) <= n * e.s * e.x.norm());  // not the rule of rotations
  REQUIRE(std::abs(a.dot(b) - e.s * e.s * e.x.dot(e.y)) <= 2 * n * e.s * e.s * e.x.norm() * e.y.norm());
  REQUIRE(std::abs((e.T * e.x).dot(e.T * e.y) - a.dot(b)) <= n * a.norm() * b.norm());
}

TEST_CASE("a scale of 0 is a map without an inverse", "[rotation]") {
  const Example e(1);
  const auto zero = conformal(0., e.R);
  REQUIRE((zero * e.x).eval() == VectorXd::Zero(4));
  REQUIRE(zero.determinant() == 0);
  REQUIRE(zero.pow(0).toDenseMatrix() == MatrixXd::Identity(4, 4));
  REQUIRE_THROWS_AS(zero.inverse(), InvalidArgument);
  REQUIRE_THROWS_AS(zero.pow(-1), InvalidArgument);
}

TEST_CASE("scales that are negative or not finite are refused with their value", "[rotation]") {
  const Example e(1);
  REQUIRE_THROWS_AS(conformal(-.5, e.R), InvalidArgument);
  REQUIRE_THROWS_WITH(conformal(-.5, e.R), contains("scale = -0.5"));
  REQUIRE_THROWS_AS(conformal(std::numeric_limits<double>::infinity(), e.R), InvalidArgument);
  REQUIRE_THROWS_AS(conformal(std::numeric_limits<double>::quiet_NaN(), e.R), InvalidArgument);
  const BlockRotation<double> larger(VectorXd::Ones(3));
  REQUIRE_THROWS_AS(e.T * conformal(1., larger), ShapeMismatch);
  REQUIRE_THROWS_AS(e.T * VectorXd::Ones(3), ShapeMismatch);
}
