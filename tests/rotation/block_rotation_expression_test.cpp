// R * x as an Eigen expression: aliasing, lifetimes, blocks, orthogonality, multiplication from the right.
#include <cmath>
#include <vector>

#include <sympow/rotation/block_rotation.hpp>

#include "catch.hpp"
#include "distance.hpp"
#include "random.hpp"

using namespace sympow;
using Eigen::MatrixXd, Eigen::VectorXd, Eigen::RowVectorXd;
using sympow::test::contains, sympow::test::unit, sympow::test::distance;

namespace {

struct Example {
  BlockRotation<double> R{VectorXd(test::Random(1).vector(3)), GENERATE(Pairing::interleaved, Pairing::half_split)};
  MatrixXd dense = R;
  VectorXd x = test::Random(2).vector(6), y = test::Random(3).vector(6);
  MatrixXd batch = test::Random(4).matrix(6, 4);
  /// Two products and a sum on either side.
  double bound =
      6 * unit<double> * std::max({x.cwiseAbs().maxCoeff(), y.cwiseAbs().maxCoeff(), batch.cwiseAbs().maxCoeff()});
};

}  // namespace

TEST_CASE("a destination that is the source gets the right values", "[rotation]") {
  const Example e;
  VectorXd y = e.x;
  y = e.R * y;
  REQUIRE(distance(y, e.dense * e.x) <= e.bound);
  y = e.x;
  y = e.R * y.reverse();
  REQUIRE(distance(y, e.dense * e.x.reverse()) <= e.bound);
  y = e.x;
  y = 2.0 * (e.R * y);
  REQUIRE(distance(y, 2 * e.dense * e.x) <= 2 * e.bound);
  y = e.x;
  y += e.R * y;
  REQUIRE(distance(y, e.x + e.dense * e.x) <= 2 * e.bound);
  y = e.x;
  y = e.y + e.R * y.reverse();
  REQUIRE(distance(y, e.y + e.dense * e.x.reverse()) <= 2 * e.bound);
  MatrixXd batch = e.batch;
  batch = e.R * batch.rowwise().reverse();
  REQUIRE(distance(batch, e.dense * e.batch.rowwise().reverse()) <= e.bound);
  batch = e.batch;
  batch.rightCols(3) = e.R * batch.leftCols(3);
  REQUIRE(distance(batch.rightCols(3), e.dense * e.batch.leftCols(3)) <= e.bound);
}

TEST_CASE("noalias writes, adds to and subtracts from the destination", "[rotation]") {
  const Example e;
  VectorXd y = e.y;
  y.noalias() = e.R * e.x;
  REQUIRE(distance(y, e.dense * e.x) <= e.bound);
  y = e.y;
  y.noalias() += e.R * e.x;
  REQUIRE(distance(y, e.y + e.dense * e.x) <= 2 * e.bound);
  y = e.y;
  y.noalias() -= e.R * e.x;
  REQUIRE(distance(y, e.y - e.dense * e.x) <= 2 * e.bound);
}

TEST_CASE("an expression kept under auto owns operator and vector if they were temporaries", "[rotation]") {
  const Example e;
  const auto far = e.R.pow(1000) * e.x;
  const auto both = e.R.transpose() * VectorXd(e.x);
  const auto scaled = 2.0 * (e.R.pow(2) * VectorXd(e.x));
  const auto nested = e.R.pow(2) * (e.R.pow(3) * VectorXd(e.x));
  const auto right = RowVectorXd(e.x.transpose()) * e.R.pow(2);
  const std::vector<VectorXd> churn(64, VectorXd::Constant(6, 99));
  REQUIRE(far.eval() == VectorXd(BlockRotation<double>(e.R.pow(1000)) * e.x));
  REQUIRE(distance(both.eval(), e.dense.transpose() * e.x) <= e.bound);
  REQUIRE(distance(scaled.eval(), 2 * e.dense * e.dense * e.x) <= 8 * e.bound);
  REQUIRE(distance(nested.eval(), e.R.pow(5).toDenseMatrix() * e.x) <= 16 * e.bound);  // angles up to 3π
  REQUIRE(distance(right.eval(), e.x.transpose() * e.dense * e.dense) <= 8 * e.bound);
}

TEST_CASE("blocks, rows, maps and strides are turned where they lie", "[rotation]") {
  const Example e;
  MatrixXd a = MatrixXd::Constant(9, 8, 7);
  a.block(2, 1, 6, 4) = e.batch;
  e.R.apply_in_place(a.block(2, 1, 6, 4));
  REQUIRE(distance(a.block(2, 1, 6, 4), e.dense * e.batch) <= e.bound);
  REQUIRE((a.array() == 7).count() == 72 - 24);
  MatrixXd whole = e.batch;
  e.R.apply_in_place(whole);
  REQUIRE(whole == a.block(2, 1, 6, 4));
  Eigen::Map<MatrixXd, 0, Eigen::OuterStride<>> every_other(a.data(), 6, 2, Eigen::OuterStride<>(18));
  every_other = e.R * e.batch.leftCols(2);
  REQUIRE(distance(every_other, e.dense * e.batch.leftCols(2)) <= e.bound);
  a.row(0).head(6) = (e.R * e.x).transpose();
  REQUIRE(distance(a.row(0).head(6).transpose(), e.dense * e.x) <= e.bound);
  Eigen::Matrix<double, Dynamic, Dynamic, Eigen::RowMajor> row_major = e.R * e.batch;
  REQUIRE(distance(row_major, e.dense * e.batch) <= e.bound);
  const Eigen::ArrayXd array = e.R * e.x;
  REQUIRE(distance(array.matrix(), e.dense * e.x) <= e.bound);
}

TEST_CASE("every kind of right factor is turned", "[rotation]") {
  const Example e;
  REQUIRE(distance((e.R * (e.x + e.y)).eval(), e.dense * (e.x + e.y)) <= 2 * e.bound);
  REQUIRE(distance((e.R * e.batch.col(1)).eval(), e.dense * e.batch.col(1)) <= e.bound);
  REQUIRE(distance((e.R * e.batch.transpose().row(1).transpose()).eval(), e.dense * e.batch.col(1)) <= e.bound);
  REQUIRE(distance((e.R * (e.R * e.x)).eval(), e.dense * e.dense * e.x) <= 4 * e.bound);
  REQUIRE(distance((e.R * e.R * e.x).eval(), e.dense * e.dense * e.x) <= 6 * e.bound);
  const VectorXd longer = test::Random(5).vector(9);
  REQUIRE((e.R * longer.head(6)).eval() == (e.R * VectorXd(longer.head(6))).eval());
  const Eigen::Matrix<double, 6, 1> fixed = e.x;
  static_assert(decltype(e.R * fixed)::ColsAtCompileTime == 1);
  REQUIRE((e.R * fixed).eval() == (e.R * e.x).eval());
}

TEST_CASE("a rotation is a dense matrix where one is asked for", "[rotation]") {
  const Example e;
  MatrixXd sum = MatrixXd::Identity(6, 6);
  sum += e.R;
  REQUIRE(sum == MatrixXd::Identity(6, 6) + e.dense);
  sum -= e.R;
  REQUIRE(distance(sum, MatrixXd::Identity(6, 6)) <= 2 * unit<double>);
  MatrixXd assigned;
  assigned = e.R;
  REQUIRE(assigned == e.R.toDenseMatrix());
}

TEST_CASE("multiplication from the right is the transposed one from the left", "[rotation]") {
  const Example e;
  const MatrixXd wide = test::Random(6).matrix(3, 6);
  const double bound = 6 * unit<double> * std::max(wide.cwiseAbs().maxCoeff(), e.x.cwiseAbs().maxCoeff());
  const MatrixXd product = wide * e.R;
  REQUIRE(distance(product, wide * e.dense) <= bound);
  const RowVectorXd row = e.x.transpose() * e.R;
  REQUIRE(distance(row, e.x.transpose() * e.dense) <= bound);
  MatrixXd own = wide;
  own = own * e.R;
  REQUIRE(own == product);
  own = wide;
  own.row(1) = own.row(1) * e.R;
  REQUIRE(distance(own.row(1), wide.row(1) * e.dense) <= bound);
}

TEST_CASE("lengths and the inner products of images under one rotation are kept without turning", "[rotation]") {
  const Example e;
  REQUIRE((e.R * e.x).norm() == e.x.norm());
  REQUIRE((e.R * e.x).squaredNorm() == e.x.squaredNorm());
  REQUIRE((e.R * e.batch).norm() == e.batch.norm());
  REQUIRE((e.R * e.x).dot(e.R * e.y) == e.x.dot(e.y));
  const BlockRotation<double> same = e.R;
  REQUIRE((e.R * e.x).dot(same * e.y) == e.x.dot(e.y));
  REQUIRE((e.R * e.x).dot(e.R.pow(1) * e.y) == e.x.dot(e.y));

  // Different rotations are evaluated: six terms of two turned entries each.
  const double bound = (6 + 12) * unit<double> * e.x.norm() * e.y.norm();
  const auto other = e.R.pow(2);
  REQUIRE(std::abs((e.R * e.x).dot(other * e.y) - (e.dense * e.x).dot(other.toDenseMatrix() * e.y)) <= bound);
  REQUIRE(std::abs((e.R * e.x).dot(other * e.y) - e.x.dot(e.R * e.y)) <= 2 * bound);  // R(a)ᵀR(2a) = R(a)
  REQUIRE(std::abs((e.R * e.x).dot(e.y) - (e.dense * e.x).dot(e.y)) <= bound);
}
