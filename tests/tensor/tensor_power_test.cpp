// x ⊗ … ⊗ x and v_1 ⊗ … ⊗ v_p against Kronecker products.
#include <cmath>

#include <sympow/tensor/symmetric_power.hpp>
#include <sympow/tensor/tensor_power.hpp>

#include "catch.hpp"
#include "definition.hpp"
#include "distance.hpp"
#include "random.hpp"

using namespace sympow;
using Eigen::MatrixXd, Eigen::VectorXd;
using sympow::test::contains, sympow::test::unit, sympow::test::relative_distance;

namespace {

template <class Scalar, int P>
void check_power(const Matrix<Scalar>& x) {
  CAPTURE(P);
  const Matrix<Scalar> power = tensor_power<P>(x), same = tensor_power(x, P);
  REQUIRE(power.rows() == tensor_dimension(x.rows(), P));
  REQUIRE(power == same);
  for (Index t = 0; t < x.cols(); ++t)  // P - 1 products an entry, and as many in the reference
    REQUIRE(relative_distance(power.col(t), test::kronecker_power(x.col(t), P)) <= (P - 1) * unit<Scalar>);
}

static_assert(decltype(tensor_power<3>(Eigen::Vector2d()))::RowsAtCompileTime == 8);
static_assert(decltype(tensor_power<8>(Eigen::Matrix<double, 8, 1>()))::RowsAtCompileTime == Dynamic);
static_assert(!is_symmetric_power<decltype(tensor_power<3>(Eigen::Vector2d()))>);

}  // namespace

TEMPLATE_TEST_CASE("the tensor power is an iterated Kronecker product, column by column", "[tensor]", float, double) {
  const auto seed = GENERATE(1u, 2u);
  const Index d = GENERATE(0, 1, 2, 4);
  const Index n = GENERATE(0, 1, 3);
  CAPTURE(seed, d, n);
  test::Random random(seed);
  const auto x = random.matrix<TestType>(d, n);
  check_power<TestType, 1>(x);
  check_power<TestType, 2>(x);
  check_power<TestType, 3>(x);
  check_power<TestType, 5>(x);
  check_power<TestType, 8>(x);
}

TEST_CASE("inner products of tensor powers are powers of inner products", "[tensor]") {
  const auto seed = GENERATE(1u, 2u, 3u);
  CAPTURE(seed);
  test::Random random(seed);
  const VectorXd x = random.vector(4), y = random.vector(4);
  const VectorXd a = tensor_power<3>(x), b = tensor_power<3>(y);
  // 64 terms of six factors each against three sums of four terms; the absolute values of the terms sum to (|x|·|y|)^3.
  const double bound = (64 + 6 + 3 * 4) * unit<double> * std::pow(x.cwiseAbs().dot(y.cwiseAbs()), 3);
  REQUIRE(std::abs(tensor_power<3>(x).dot(tensor_power<3>(y)) - a.dot(b)) <= bound);
  REQUIRE(std::abs(tensor_power(x, 3).dot(tensor_power(y, 3)) - a.dot(b)) <= bound);
  const double length_bound = 2 * (64 + 6 + 3 * 4) * unit<double> * a.squaredNorm();
  REQUIRE(std::abs(tensor_power<3>(x).squaredNorm() - a.squaredNorm()) <= length_bound);
  REQUIRE(std::abs(tensor_power<3>(x).norm() * a.norm() - a.squaredNorm()) <= length_bound);
}

TEST_CASE("the tensor product of different vectors is their Kronecker product", "[tensor]") {
  const auto seed = GENERATE(1u, 2u);
  CAPTURE(seed);
  test::Random random(seed);
  const VectorXd a = random.vector(3), b = random.vector(1), c = random.vector(4), d = random.vector(2);
  const VectorXd product = tensor_product(a, b, c, d);
  const auto exact = [](const VectorXd& v) { return test::kronecker_power(v, 1); };
  const auto expected = test::kronecker(test::kronecker(test::kronecker(exact(a), exact(b)), exact(c)), exact(d));
  REQUIRE(relative_distance(product, expected) <= 3 * unit<double>);  // three products an entry
  REQUIRE(VectorXd(tensor_product(a)) == a);
  const VectorXd cube = tensor_power<3>(a);
  REQUIRE(VectorXd(tensor_product(a, a, a)) == cube);
}

TEST_CASE("the inner product of two tensor products is the product of the inner products", "[tensor]") {
  test::Random random(3);
  const VectorXd a = random.vector(3), b = random.vector(2), c = random.vector(3), d = random.vector(2);
  const double full = VectorXd(tensor_product(a, b)).dot(VectorXd(tensor_product(c, d)));
  // Six terms of four factors; the absolute values sum to (|a|·|c|)(|b|·|d|).
  const double bound = 2 * (6 + 4) * unit<double> * a.cwiseAbs().dot(c.cwiseAbs()) * b.cwiseAbs().dot(d.cwiseAbs());
  REQUIRE(std::abs(tensor_product(a, b).dot(tensor_product(c, d)) - full) <= bound);
  REQUIRE(std::abs(tensor_product(a, b).dot(VectorXd(tensor_product(c, d))) - full) <= bound);
  // Another grouping of the same six entries has no such rule and is computed entry by entry.
  const VectorXd six = random.vector(6);
  REQUIRE(tensor_product(a, b).dot(tensor_product(six)) == VectorXd(tensor_product(a, b)).dot(six));
  REQUIRE_THROWS_AS(tensor_product(a, b).dot(tensor_product(d, c)), ShapeMismatch);
  REQUIRE_THROWS_WITH(tensor_product(a, b).dot(tensor_product(d, c)), contains("right factor is 2, must be 3"));
}

TEST_CASE("tensor products are expressions like any other", "[tensor]") {
  test::Random random(4);
  VectorXd a = random.vector(3);
  const VectorXd b = random.vector(2);
  const VectorXd plain = tensor_product(a, b);
  const auto kept = tensor_product(VectorXd(a), VectorXd(b));
  const std::vector<VectorXd> churn(64, VectorXd::Constant(3, 99));
  REQUIRE(kept.eval() == plain);
  REQUIRE((2 * tensor_product(a, b)).eval() == 2 * plain);
  REQUIRE(tensor_product(2 * a, b.reverse().reverse()).eval() == VectorXd(tensor_product(VectorXd(2 * a), b)));
  MatrixXd wide = MatrixXd::Constant(6, 3, 7);
  wide.col(1) = tensor_product(a, b);
  REQUIRE(wide.col(1) == plain);
  REQUIRE((wide.array() == 7).count() == 12);
  wide = tensor_product(a, b);
  REQUIRE(wide == plain);
  MatrixXd rows(2, 6);
  rows.row(1) = tensor_product(a, b).transpose();
  REQUIRE(rows.row(1) == plain.transpose());
  a = tensor_product(a, b);
  REQUIRE(a == plain);
}

TEST_CASE("an empty factor makes an empty tensor product", "[tensor]") {
  const VectorXd a = VectorXd::Ones(3), none(0);
  REQUIRE(tensor_product(a, none).eval().size() == 0);
  REQUIRE(tensor_product(none, a).eval().size() == 0);
  REQUIRE(tensor_product(a, a, none, a).rows() == 0);
}

TEST_CASE("tensor powers and products beyond the index type are refused at once", "[tensor]") {
  const VectorXd x = VectorXd::Ones(256), y = VectorXd::Ones(3);
  REQUIRE_THROWS_AS(tensor_power<8>(x), DimensionOverflow);
  REQUIRE_THROWS_AS(tensor_product(x, x, x, x, x, x, x, x), DimensionOverflow);
  REQUIRE_THROWS_WITH(tensor_product(x, x, x, x, x, x, x, x), contains("does not fit"));
  REQUIRE(tensor_power<7>(x).rows() == Index(1) << 56);
  REQUIRE_THROWS_WITH(tensor_power(y, 9), contains("power p = 9"));
  REQUIRE_THROWS_AS(tensor_power(y, 0), InvalidPower);
  REQUIRE_THROWS_AS(tensor_power(y, 2).dot(tensor_power(y, 3)), ShapeMismatch);
}
