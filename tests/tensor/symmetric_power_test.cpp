// The values of φ^p: every power, scalar type and shape against the definition.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include <sympow/tensor/symmetric_power.hpp>

#include "catch.hpp"
#include "definition.hpp"
#include "distance.hpp"
#include "random.hpp"

using namespace sympow;
using Eigen::MatrixXd, Eigen::VectorXd;
using sympow::test::contains, sympow::test::unit, sympow::test::relative_distance,
    sympow::test::defined_symmetric_power;

namespace {

/// f with every power from 1 to 8 as a constant.
template <class F>
void for_each_power(F&& f) {
  [&]<int... I>(std::integer_sequence<int, I...>) {
    (f(std::integral_constant<int, I + 1>{}), ...);
  }(std::make_integer_sequence<int, max_power>{});
}

/// Roundings of one entry of φ^p: √p! and x_i at the root; x_i/√r (√, division, conversion, product) and the product
/// with the prefix at each of p - 1 further levels.
constexpr int roundings(int p) { return 2 + 5 * (p - 1) + 2; }

template <class Scalar>
void check_against_definition(const Vector<Scalar>& x) {
  for_each_power([&]<int P>(std::integral_constant<int, P>) {
    CAPTURE(P);
    const Vector<Scalar> phi = symmetric_power<P>(x);
    const Vector<Scalar> same = symmetric_power(x, P);
    const Vector<test::Exact> expected = defined_symmetric_power(x, P);
    REQUIRE(phi.size() == symmetric_dimension(x.size(), P));
    REQUIRE(relative_distance(phi, expected) <= roundings(P) * unit<Scalar>);
    REQUIRE(phi == same);
  });
}

static_assert(decltype(symmetric_power<2>(Eigen::Vector3f()))::RowsAtCompileTime == 6);
static_assert(decltype(symmetric_power<2>(Eigen::Matrix<double, 3, 5>()))::ColsAtCompileTime == 5);
static_assert(decltype(symmetric_power(Eigen::Vector3f(), 2))::RowsAtCompileTime == Dynamic);
static_assert(decltype(symmetric_power<4>(Eigen::Matrix<double, 64, 1>()))::RowsAtCompileTime == Dynamic);  // 6 MB
static_assert(is_symmetric_power<decltype(symmetric_power<2>(VectorXd()))>);
static_assert(!is_symmetric_power<VectorXd>);

}  // namespace

TEMPLATE_TEST_CASE("the embedding of a vector is its definition, for every power", "[tensor]", float, double) {
  const auto seed = GENERATE(1u, 2u);
  const Index d = GENERATE(0, 1, 2, 3, 5, 7);
  CAPTURE(seed, d);
  test::Random random(seed);
  check_against_definition<TestType>(random.vector<TestType>(d));
}

TEMPLATE_TEST_CASE("zeros, signs and magnitudes come through exactly as defined", "[tensor]", float, double) {
  Vector<TestType> x(4);
  x << 0, -1, TestType(3e4), TestType(-2e-4);
  check_against_definition<TestType>(x);
  check_against_definition<TestType>(Vector<TestType>::Zero(3));
  check_against_definition<TestType>(Vector<TestType>::Constant(3, -1));
}

TEST_CASE("infinities and NaN reach exactly the entries that contain them", "[tensor]") {
  Eigen::Vector3d x(2, std::numeric_limits<double>::quiet_NaN(), 3);
  const VectorXd phi = symmetric_power<3>(x);
  const MultiIndices<3> indices(3);
  for (Index n = 0; n < indices.size(); ++n) REQUIRE(std::isnan(phi[n]) == (std::ranges::count(indices[n], 1) > 0));
}

namespace {

/// Some entries of φ^P(x) where there are many.
template <int P, class Scalar>
void check_some_entries(Index d, int trials) {
  CAPTURE(P, d);
  test::Random random(1);
  const auto x = random.vector<Scalar>(d);
  const Vector<Scalar> phi = symmetric_power<P>(x);
  const MultiIndices<P> indices(d);
  for (int trial = 0; trial < trials; ++trial) {
    const Index n = random.integer(0, indices.size() - 1);
    CAPTURE(n);
    double expected = std::sqrt(static_cast<double>(multiplicity(indices[n])));
    for (const Index i : indices[n]) expected *= static_cast<double>(x[i]);
    REQUIRE(std::abs(static_cast<double>(phi[n]) - expected) <=
            (roundings(P) * unit<Scalar> + 4 * P * unit<double>)*std::abs(expected));
  }
}

}  // namespace

TEMPLATE_TEST_CASE("long columns are made of the lists that have room: of all levels, of some, of none", "[tensor]",
                   float, double) {
  check_some_entries<4, TestType>(16, 1000);
  check_some_entries<3, TestType>(64, 1000);
  check_some_entries<4, TestType>(40, 1000);
  check_some_entries<5, TestType>(17, 1000);
  check_some_entries<6, TestType>(14, 1000);
  check_some_entries<3, TestType>(150, 1000);   // no pair has a list
  check_some_entries<2, TestType>(4500, 1000);  // x itself does not fit the stack's share
}

TEMPLATE_TEST_CASE("a batch is embedded column by column, and nothing is written beside its target", "[tensor]", float,
                   double) {
  const Index d = GENERATE(1, 2, 5, 9);
  CAPTURE(d);
  const Matrix<TestType> x = test::Random(1).matrix<TestType>(d, 3);
  for_each_power([&]<int P>(std::integral_constant<int, P>) {
    CAPTURE(P);
    const Matrix<TestType> phi = symmetric_power<P>(x), same = symmetric_power(x, P);
    REQUIRE(phi == same);
    REQUIRE(symmetric_power<P>(x.leftCols(0)).cols() == 0);
    Matrix<TestType> large = Matrix<TestType>::Constant(phi.rows() + 40, 5, 7);
    large.block(20, 1, phi.rows(), 3) = symmetric_power<P>(x);
    REQUIRE(large.block(20, 1, phi.rows(), 3) == phi);
    large.block(20, 1, phi.rows(), 3).setConstant(7);
    REQUIRE((large.array() == 7).all());
    Vector<TestType> exact(phi.rows());  // nothing after its end, where a sanitizer looks
    for (Index t = 0; t < 3; ++t) {
      exact.noalias() = symmetric_power<P>(x.col(t));
      REQUIRE(exact == phi.col(t));
    }
  });
}

TEST_CASE("sizes fixed at compile time give the same values", "[tensor]") {
  test::Random random(4);
  const Eigen::Matrix<double, 3, 2> x = random.matrix(3, 2);
  const Eigen::Matrix<double, 10, 2> phi = symmetric_power<3>(x);
  REQUIRE(phi == MatrixXd(symmetric_power<3>(MatrixXd(x))));
  const Eigen::Matrix<double, 1, 1> one(-2);
  REQUIRE(symmetric_power<3>(one).eval()(0) == -8);
  REQUIRE(symmetric_power<3>(Eigen::Matrix<double, 0, 1>()).eval().size() == 0);
  const Eigen::Matrix<double, 64, 1> wide = random.vector(64);
  const VectorXd twice = 2 * symmetric_power<3>(wide);  // a temporary that would not fit the stack
  REQUIRE(twice == 2 * VectorXd(symmetric_power<3>(VectorXd(wide))));
}

TEST_CASE("inner products of embeddings are powers of inner products", "[tensor]") {
  const auto seed = GENERATE(1u, 2u, 3u);
  const Index d = GENERATE(0, 1, 3, 6);
  CAPTURE(seed, d);
  test::Random random(seed);
  const VectorXd x = random.vector(d), y = random.vector(d);
  for (int p = 1; p <= max_power; ++p) {
    CAPTURE(p);
    const VectorXd a = symmetric_power(x, p), b = symmetric_power(y, p);
    // A sum of D products of two entries; the absolute values of its terms sum to (|x|·|y|)^p.
    const double terms = static_cast<double>(a.size()) + 2 * roundings(p) + 2 * static_cast<double>(d) * p;
    const double bound = terms * unit<double> * std::pow(x.cwiseAbs().dot(y.cwiseAbs()), p);
    REQUIRE(std::abs(a.dot(b) - std::pow(x.dot(y), p)) <= bound);
    REQUIRE(std::abs(symmetric_power(x, p).dot(symmetric_power(y, p)) - a.dot(b)) <= bound);
    const double length_bound = 2 * terms * unit<double> * std::pow(x.squaredNorm(), p);
    REQUIRE(std::abs(symmetric_power(x, p).squaredNorm() - a.squaredNorm()) <= length_bound);
    REQUIRE(std::abs(std::pow(symmetric_power(x, p).norm(), 2) - a.squaredNorm()) <= length_bound);
  }
}

TEST_CASE("powers outside of 1 … 8 and dimensions beyond the index type are refused at once", "[tensor]") {
  const VectorXd x = VectorXd::Ones(3);
  REQUIRE_THROWS_AS(symmetric_power(x, 0), InvalidPower);
  REQUIRE_THROWS_WITH(symmetric_power(x, 0), contains("power p = 0 must lie in 1 … 8"));
  REQUIRE_THROWS_WITH(symmetric_power(x, 9), contains("power p = 9 must lie in 1 … 8"));
  REQUIRE_THROWS_WITH(symmetric_power<Dynamic>(x), contains("power p = -1"));
  const VectorXd large = VectorXd::Ones(1000);
  REQUIRE_THROWS_AS(symmetric_power<8>(large), DimensionOverflow);
  REQUIRE_THROWS_AS(symmetric_power(large, 8), DimensionOverflow);
  REQUIRE(symmetric_power<6>(large).rows() == binomial(1005, 6));  // named without being computed
}

TEST_CASE("the inner product of embeddings that do not fit is refused", "[tensor]") {
  const VectorXd x = VectorXd::Ones(3), y = VectorXd::Ones(4);
  REQUIRE_THROWS_AS(symmetric_power(x, 2).dot(symmetric_power(x, 3)), ShapeMismatch);
  REQUIRE_THROWS_WITH(symmetric_power(x, 2).dot(symmetric_power<3>(x)), contains("right embedding is 3, must be 2"));
  REQUIRE_THROWS_WITH(symmetric_power<2>(x).dot(symmetric_power<2>(y)), contains("right operand is 4, must be 3"));
  REQUIRE_THROWS_AS(symmetric_power(x, 2).transpose() * symmetric_power(x, 3), ShapeMismatch);
  REQUIRE_THROWS_WITH(symmetric_power<2>(x).transpose() * symmetric_power<2>(y),
                      contains("right operand is 4, must be 3"));
}

// What LazyExpression does with any operation is a test of core; here is what the embedding writes and reads itself.
TEST_CASE("the embedding is written to columns, rows, strides and matrices of rows", "[tensor]") {
  const VectorXd x = test::Random(1).vector(4), phi = symmetric_power<2>(x);
  const MatrixXd batch = test::Random(3).matrix(4, 3), image = symmetric_power<2>(batch);
  MatrixXd a = MatrixXd::Constant(10, 10, 7);
  a.col(1).noalias() = symmetric_power<2>(x);
  REQUIRE(a.col(1) == phi);
  a.row(3) = symmetric_power<2>(x).transpose();
  REQUIRE(a.row(3) == phi.transpose());
  a.middleCols(4, 3) = symmetric_power<2>(batch);
  REQUIRE(a.middleCols(4, 3) == image);
  a.middleRows(2, 3) = symmetric_power<2>(batch).transpose();
  REQUIRE(a.middleRows(2, 3) == image.transpose());
  std::vector<double> memory(60, 7);
  Eigen::Map<VectorXd, 0, Eigen::InnerStride<>> strided(memory.data(), 10, Eigen::InnerStride<>(3));
  strided.noalias() = symmetric_power<2>(x);
  REQUIRE(strided == phi);
  REQUIRE(std::ranges::count(memory, 7) == 50);  // between the strides
  Eigen::Map<MatrixXd, 0, Eigen::OuterStride<>> columns(memory.data(), 10, 3, Eigen::OuterStride<>(20));
  columns = symmetric_power<2>(batch);
  REQUIRE(columns == image);
  const Eigen::Matrix<double, Dynamic, Dynamic, Eigen::RowMajor> rows = symmetric_power<2>(batch);
  REQUIRE(rows == image);
}

TEST_CASE("every kind of source is embedded, also one that the embedding is assigned to", "[tensor]") {
  const VectorXd x = test::Random(1).vector(4), y = test::Random(2).vector(4), phi = symmetric_power<2>(x);
  const MatrixXd batch = test::Random(3).matrix(4, 3), image = symmetric_power<2>(batch), square = batch * y.head(3);
  const auto embedded = [](const VectorXd& plain) { return VectorXd(symmetric_power<2>(plain)); };
  REQUIRE(symmetric_power<2>(batch.row(1).transpose()).eval() == embedded(batch.row(1).transpose()));
  REQUIRE(symmetric_power<2>(x + y).eval() == embedded(x + y));
  REQUIRE(symmetric_power<2>(batch * y.head(3)).eval() == embedded(square));
  REQUIRE(symmetric_power<2>(symmetric_power<2>(x)).eval() == embedded(phi));
  const Eigen::Matrix<double, Dynamic, Dynamic, Eigen::RowMajor> row_major = batch;
  REQUIRE(symmetric_power<2>(row_major).eval() == image);
  const Eigen::Map<const MatrixXd, 0, Eigen::OuterStride<>> every_other(batch.data(), 4, 2, Eigen::OuterStride<>(8));
  REQUIRE(symmetric_power<2>(every_other).eval().col(1) == image.col(2));
  MatrixXd a(10, 2);
  a.col(0).head(4) = x;
  a.col(0) = symmetric_power<2>(a.col(0).head(4));
  REQUIRE(a.col(0) == phi);
  const auto kept = 2.0 * symmetric_power<2>(symmetric_power<2>(VectorXd(x)));
  const std::vector<VectorXd> churn(64, VectorXd::Constant(4, 99));  // reuses memory that was given back
  REQUIRE(kept.eval() == 2 * embedded(phi));
}
