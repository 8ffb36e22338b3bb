// The exceptions, and which arguments count as matrices and vectors or bind to a batch without a copy.
#include <concepts>

#include <sympow/core/checks.hpp>
#include <sympow/core/concepts.hpp>

#include "catch.hpp"

using namespace sympow;
using Eigen::MatrixXd, Eigen::VectorXd;
using sympow::test::contains;

// ---- who derives from whom, and how a message is put together ----

namespace {

template <class Error>
concept AnInvalidArgument = std::derived_from<Error, InvalidArgument> && !std::same_as<Error, InvalidArgument>;

static_assert(std::derived_from<InvalidArgument, std::invalid_argument>);
static_assert(AnInvalidArgument<ShapeMismatch> && AnInvalidArgument<InvalidPower> && AnInvalidArgument<OddDimension>);
static_assert(AnInvalidArgument<InvalidGate> && AnInvalidArgument<InvalidMultiIndex> &&
              AnInvalidArgument<FrameMismatch>);
static_assert(std::derived_from<DimensionOverflow, std::overflow_error> &&
              !std::derived_from<DimensionOverflow, InvalidArgument>);

template <class Error>
void check_raise() {
  REQUIRE_THROWS_AS(detail::raise<Error>("text"), Error);
  REQUIRE_THROWS_WITH(detail::raise<Error>("n = ", -3, ", x = ", .5, " and ", std::string("text")),
                      "n = -3, x = 0.5 and text");
}

}  // namespace

TEST_CASE("every error carries the message that its parts make", "[core]") {
  check_raise<InvalidArgument>();
  check_raise<ShapeMismatch>();
  check_raise<InvalidPower>();
  check_raise<OddDimension>();
  check_raise<InvalidGate>();
  check_raise<InvalidMultiIndex>();
  check_raise<FrameMismatch>();
  check_raise<DimensionOverflow>();
}

TEST_CASE("a size is checked against what it must be", "[core]") {
  REQUIRE_NOTHROW(detail::check_size("rows", 3, 3, "as many"));
  REQUIRE_THROWS_AS(detail::check_size("rows", 3, 4, "as many"), ShapeMismatch);
  REQUIRE_THROWS_WITH(detail::check_size("rows", 3, 4, "as many"), "rows is 3, must be 4 (as many)");
  REQUIRE_THROWS_WITH(detail::check_size("rows", 4, 3, "as many"), contains("is 4, must be 3"));
}

// ---- arguments ----

namespace {

using Head = decltype(std::declval<VectorXd&>().head(3));
using Sum = decltype(std::declval<VectorXd&>() + std::declval<VectorXd&>());
using Product = decltype(std::declval<MatrixXd&>() * std::declval<VectorXd&>());

static_assert(MatrixExpression<MatrixXd> && MatrixExpression<const MatrixXd&> && MatrixExpression<MatrixXd&&>);
static_assert(MatrixExpression<Head> && MatrixExpression<Sum> && MatrixExpression<Product>);
static_assert(MatrixExpression<Eigen::Map<const Eigen::Matrix3f>> && MatrixExpression<Eigen::Ref<const VectorXd>>);
static_assert(!MatrixExpression<int> && !MatrixExpression<Eigen::ArrayXd> && !MatrixExpression<std::pair<int, int>>);

static_assert(VectorExpression<VectorXd> && VectorExpression<Head> && VectorExpression<Sum> &&
              VectorExpression<Product>);
static_assert(VectorExpression<Eigen::Vector3f> && VectorExpression<Eigen::Matrix<double, 1, 1>>);
static_assert(!VectorExpression<MatrixXd> && !VectorExpression<Eigen::RowVectorXd>);

static_assert(std::same_as<expression_t<Head>, Eigen::Block<VectorXd, Dynamic, 1, false>>);
static_assert(std::same_as<expression_t<const VectorXd&>, VectorXd> &&
              std::same_as<expression_t<Sum>, std::remove_const_t<Sum>>);
static_assert(std::same_as<scalar_t<Eigen::Vector3f&>, float> && std::same_as<scalar_t<Product>, double>);

}  // namespace

TEST_CASE("matrices, blocks and strided maps bind to a batch without a copy", "[core]") {
  MatrixXd a = MatrixXd::Random(6, 5);
  const ConstBatch<double> whole(a), columns(a.middleCols(1, 3)), rows(a.middleRows(2, 3)), column(a.col(4));
  REQUIRE(whole.data() == a.data());
  REQUIRE(columns.data() == a.col(1).data());
  REQUIRE(rows.data() == &a(2, 0));
  REQUIRE(rows.outerStride() == 6);
  REQUIRE(column.data() == a.col(4).data());
  const Eigen::Map<MatrixXd, 0, Eigen::OuterStride<>> every_other(a.data(), 6, 2, Eigen::OuterStride<>(12));
  REQUIRE(ConstBatch<double>(every_other).data() == a.data());
  Batch<double> written(a.middleRows(2, 3));
  written.setZero();
  REQUIRE(a.middleRows(2, 3).isZero(0));
}

TEST_CASE("expressions and row-major matrices bind to a batch by a copy of equal value", "[core]") {
  const MatrixXd a = MatrixXd::Random(4, 3);
  const Eigen::Matrix<double, Dynamic, Dynamic, Eigen::RowMajor> row_major = a;
  REQUIRE(ConstBatch<double>(row_major) == a);
  REQUIRE(ConstBatch<double>(2 * a) == 2 * a);
}
