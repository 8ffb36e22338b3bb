// φ(x) as an Eigen expression: every kind of destination, aliasing, lifetimes under auto, compound expressions.
#include <sympow/tensor/symmetric_power.hpp>

#include "catch.hpp"
#include "distance.hpp"
#include "random.hpp"

using namespace sympow;
using Eigen::MatrixXd, Eigen::VectorXd, Eigen::RowVectorXd;
using sympow::test::unit, sympow::test::distance;

namespace {

struct Example {
  VectorXd x = test::Random(1).vector(4), y = test::Random(2).vector(4);
  MatrixXd batch = test::Random(3).matrix(4, 3);
  VectorXd phi = symmetric_power<2>(x), psi = symmetric_power<2>(y);
  MatrixXd image = symmetric_power<2>(batch);
};

}  // namespace

TEST_CASE("the embedding is written into any destination of the right shape", "[tensor]") {
  const Example e;
  MatrixXd a = MatrixXd::Constant(10, 10, 7);
  const auto others_untouched = [&] { return (a.array() == 7).count(); };

  a.col(1) = symmetric_power<2>(e.x);
  REQUIRE(a.col(1) == e.phi);
  a.col(2).noalias() = symmetric_power<2>(e.x);
  REQUIRE(a.col(2) == e.phi);
  REQUIRE(others_untouched() == 80);
  a.row(3) = symmetric_power<2>(e.x).transpose();
  REQUIRE(a.row(3) == e.phi.transpose());
  a.row(4) = symmetric_power<2>(e.x);  // Eigen turns vectors to fit
  REQUIRE(a.row(4) == e.phi.transpose());
  a.setConstant(7);
  a.block(0, 2, 10, 3) = symmetric_power<2>(e.batch);
  REQUIRE(a.middleCols(2, 3) == e.image);
  REQUIRE(others_untouched() == 70);
  a.middleRows(2, 3) = symmetric_power<2>(e.batch).transpose();
  REQUIRE(a.middleRows(2, 3) == e.image.transpose());
}

TEST_CASE("maps, strides, row-major matrices and arrays are destinations", "[tensor]") {
  const Example e;
  std::vector<double> memory(60, 7);
  Eigen::Map<VectorXd>(memory.data(), 10) = symmetric_power<2>(e.x);
  REQUIRE(Eigen::Map<VectorXd>(memory.data(), 10) == e.phi);
  Eigen::Map<VectorXd, 0, Eigen::InnerStride<>> strided(memory.data(), 10, Eigen::InnerStride<>(3));
  strided.noalias() = symmetric_power<2>(e.y);
  REQUIRE(strided == e.psi);
  REQUIRE(memory[1] == e.phi[1]);  // between the strides
  Eigen::Map<MatrixXd, 0, Eigen::OuterStride<>> columns(memory.data(), 10, 3, Eigen::OuterStride<>(20));
  columns = symmetric_power<2>(e.batch);
  REQUIRE(columns == e.image);
  Eigen::Matrix<double, Dynamic, Dynamic, Eigen::RowMajor> row_major = symmetric_power<2>(e.batch);
  REQUIRE(row_major == e.image);
  const Eigen::ArrayXd array = symmetric_power<2>(e.x);
  REQUIRE(array.matrix() == e.phi);
  VectorXd viewed(10);
  viewed.array() = symmetric_power<2>(e.x);
  REQUIRE(viewed == e.phi);
  const RowVectorXd row = symmetric_power<2>(e.x);
  REQUIRE(row.transpose() == e.phi);
  const MatrixXd one_column = symmetric_power<2>(e.x);
  REQUIRE(one_column == e.phi);
  VectorXd resized(1);
  resized = symmetric_power<2>(e.x);
  REQUIRE(resized == e.phi);
}

TEST_CASE("every kind of source is embedded", "[tensor]") {
  const Example e;
  const MatrixXd square = test::Random(5).matrix(4, 4);
  const auto embedded = [](const VectorXd& plain) { return VectorXd(symmetric_power<2>(plain)); };
  REQUIRE(symmetric_power<2>(square.col(1)).eval() == embedded(square.col(1)));
  REQUIRE(symmetric_power<2>(square.row(1).transpose()).eval() == embedded(square.row(1).transpose()));
  REQUIRE(symmetric_power<2>(e.x.head(3)).eval() == embedded(e.x.head(3)));
  REQUIRE(symmetric_power<2>(e.x + e.y).eval() == embedded(e.x + e.y));
  REQUIRE(symmetric_power<2>(square * e.x).eval() == embedded(square * e.x));
  REQUIRE(symmetric_power<2>(e.x.array().exp().matrix()).eval() == embedded(e.x.array().exp()));
  REQUIRE(symmetric_power<2>(e.batch.leftCols(2)).eval() == e.image.leftCols(2));
  REQUIRE(symmetric_power<2>(symmetric_power<2>(e.x)).eval() == embedded(e.phi));
  const Eigen::Matrix<double, Dynamic, Dynamic, Eigen::RowMajor> row_major = e.batch;
  REQUIRE(symmetric_power<2>(row_major).eval() == e.image);
  const Eigen::Map<const MatrixXd, 0, Eigen::OuterStride<>> every_other(e.batch.data(), 4, 2, Eigen::OuterStride<>(8));
  REQUIRE(symmetric_power<2>(every_other).eval().col(1) == e.image.col(2));
}

TEST_CASE("a destination that is the source gets the right values", "[tensor]") {
  const Example e;
  VectorXd x = e.x;
  x = symmetric_power<2>(x);
  REQUIRE(x == e.phi);
  x = e.x;
  x = symmetric_power<1>(x.reverse());
  REQUIRE(x == e.x.reverse());
  MatrixXd batch = e.batch;
  batch = symmetric_power<2>(batch);
  REQUIRE(batch == e.image);
  MatrixXd a(10, 2);
  a.col(0).head(4) = e.x;
  a.col(0) = symmetric_power<2>(a.col(0).head(4));
  REQUIRE(a.col(0) == e.phi);
  VectorXd sum = e.psi;
  sum.head(4) = e.x;
  const VectorXd before = sum;
  sum += symmetric_power<2>(sum.head(4));
  REQUIRE(distance(sum, before + e.phi) == 0);
}

TEST_CASE("an expression kept under auto owns the temporaries that it was built from", "[tensor]") {
  const Example e;
  const auto from_plain = symmetric_power<2>(VectorXd(e.x));
  const auto from_sum = symmetric_power<2>(e.x + e.y);
  const auto scaled = 2.0 * symmetric_power<2>(VectorXd(e.x));
  const auto nested = symmetric_power<2>(symmetric_power<2>(VectorXd(e.x)));
  const auto gram = symmetric_power<2>(MatrixXd(e.batch)).transpose() * symmetric_power<2>(MatrixXd(e.batch));
  const std::vector<VectorXd> churn(64, VectorXd::Constant(4, 99));  // reuses memory that was given back
  REQUIRE(from_plain.eval() == e.phi);
  REQUIRE(from_sum.eval() == VectorXd(symmetric_power<2>(VectorXd(e.x + e.y))));
  REQUIRE(scaled.eval() == 2 * e.phi);
  REQUIRE(nested.eval() == VectorXd(symmetric_power<2>(e.phi)));
  REQUIRE(gram.eval() == (e.batch.transpose() * e.batch).cwiseAbs2());
}

TEST_CASE("an expression of a named vector sees the vector's later values", "[tensor]") {
  Example e;
  const auto phi = symmetric_power<2>(e.x);
  e.x = e.y;
  REQUIRE(phi.eval() == e.psi);
}

TEST_CASE("compound expressions evaluate the embedding where they need it", "[tensor]") {
  const Example e;
  const MatrixXd a = test::Random(4).matrix(10, 10);
  REQUIRE((2 * symmetric_power<2>(e.x) - symmetric_power<2>(e.y)).eval() == 2 * e.phi - e.psi);
  REQUIRE(symmetric_power<2>(e.x).cwiseAbs().maxCoeff() == e.phi.cwiseAbs().maxCoeff());
  REQUIRE(symmetric_power<2>(e.x)(3) == e.phi(3));
  REQUIRE(symmetric_power<2>(e.x).segment(2, 3) == e.phi.segment(2, 3));
  REQUIRE(symmetric_power<2>(e.x).cast<float>().eval() == e.phi.cast<float>());
  REQUIRE(symmetric_power<2>(e.x).dot(e.psi) == e.phi.dot(e.psi));
  REQUIRE(e.psi.dot(symmetric_power<2>(e.x)) == e.psi.dot(e.phi));
  REQUIRE(symmetric_power<2>(e.batch).squaredNorm() == e.image.squaredNorm());
  REQUIRE(symmetric_power<2>(e.batch).norm() == e.image.norm());

  VectorXd y = e.psi;
  y += symmetric_power<2>(e.x);
  y -= symmetric_power<2>(e.y);
  // One rounding of each of two sums, entry by entry.
  REQUIRE(distance(y, e.phi) <= 2 * unit<double> * (e.phi.cwiseAbs() + e.psi.cwiseAbs()).maxCoeff());
  // A product of 10 terms; the same kernel, possibly in another order.
  const double bound = 2 * 10 * unit<double> * (a.cwiseAbs() * e.phi.cwiseAbs()).maxCoeff();
  REQUIRE(distance((a * symmetric_power<2>(e.x)).eval(), a * e.phi) <= bound);
  y.noalias() = a * symmetric_power<2>(e.x);
  REQUIRE(distance(y, a * e.phi) <= bound);
  const MatrixXd outer = symmetric_power<2>(e.x) * symmetric_power<2>(e.y).transpose();
  REQUIRE(outer == e.phi * e.psi.transpose());
  MatrixXd state = MatrixXd::Zero(4, 10);
  state.noalias() += e.y * symmetric_power<2>(e.x).transpose();
  REQUIRE(state == e.y * e.phi.transpose());
}
