// LazyExpression with an operation of its own: how often it runs, where it writes, what it keeps.
#include <vector>

#include <sympow/core/lazy_expression.hpp>

#include "catch.hpp"
#include "random.hpp"

using namespace sympow;
using Eigen::MatrixXd, Eigen::VectorXd;

namespace {

/// What the last evaluations did.
struct Log {
  static inline int evaluations = 0;
  static inline const double* destination = nullptr;
};

/// x upside down; knows its norm, and its inner product with another of its kind.
template <class X>
struct Flip {
  using PlainObject =
      Eigen::Matrix<scalar_t<X>, expression_t<X>::RowsAtCompileTime, expression_t<X>::ColsAtCompileTime>;
  operand_t<X> x;
  Index rows() const { return x.rows(); }
  Index cols() const { return x.cols(); }
  template <class Destination>
  void evalTo(Destination& y) const {
    ++Log::evaluations;
    Log::destination = &y.coeffRef(0, 0);
    for (Index i = 0; i < rows(); ++i) y.row(rows() - 1 - i) = x.row(i);
  }
  template <class Y>
  double dot(const LazyExpression<Flip<Y>>& other) const {
    return x.dot(other.op().x);
  }
  double norm() const { return x.norm(); }
  double squaredNorm() const { return x.squaredNorm(); }
};

template <MatrixExpression X>
auto flip(X&& x) {
  return LazyExpression(Flip<X>{std::forward<X>(x)});
}

/// The number of evaluations that f causes.
template <class F>
int evaluations_of(F&& f) {
  const int before = Log::evaluations;
  f();
  return Log::evaluations - before;
}

using Named = decltype(flip(std::declval<VectorXd&>()));
using Owned = decltype(flip(std::declval<VectorXd>()));
static_assert(is_lazy_expression<Owned> && is_lazy_expression<Named> && !is_lazy_expression<VectorXd>);
static_assert(MatrixExpression<Named> && VectorExpression<Named>);
static_assert(std::same_as<operand_t<VectorXd&>, const VectorXd&> &&
              std::same_as<operand_t<const VectorXd&>, const VectorXd&>);
static_assert(std::same_as<operand_t<VectorXd>, const VectorXd>);
static_assert(std::same_as<operand_t<Eigen::VectorBlock<VectorXd>>, const Eigen::Block<VectorXd, Dynamic, 1, false>>);
static_assert(std::same_as<operand_t<Named&>, const Named>);  // an expression is copied, not referred to
static_assert(std::same_as<decltype(std::declval<Named>().transpose()), Eigen::Transpose<const Named>>);
static_assert(std::same_as<decltype(std::declval<Named&>().transpose()), Eigen::Transpose<const Named>>);

struct Example {
  VectorXd x = test::Random(1).vector(5), flipped = x.reverse();
};

}  // namespace

TEST_CASE("nothing runs before it is assigned, and an assignment runs it once", "[core]") {
  Example e;
  const int before = Log::evaluations;
  const auto expression = flip(e.x);
  REQUIRE(expression.rows() == 5);
  REQUIRE(expression.cols() == 1);
  REQUIRE(expression.op().rows() == 5);
  REQUIRE(Log::evaluations == before);
  VectorXd y;
  REQUIRE(evaluations_of([&] { y = expression; }) == 1);
  REQUIRE(y == e.flipped);
  REQUIRE(evaluations_of([&] { y += 2 * expression; }) == 1);
  REQUIRE(y == e.flipped + 2 * e.flipped);
  REQUIRE(evaluations_of([&] { y = expression.cwiseAbs() + expression; }) == 2);
  REQUIRE(evaluations_of([&] { y = MatrixXd::Identity(5, 5) * expression; }) == 1);
  REQUIRE(y == e.flipped);
  REQUIRE(evaluations_of([&] { y = flip(flip(e.x)); }) >= 2);
  REQUIRE(y == e.x);
}

TEST_CASE("noalias and a fresh object are written to directly, an assignment through a temporary", "[core]") {
  Example e;
  VectorXd y(5);
  y.noalias() = flip(e.x);
  REQUIRE(Log::destination == y.data());
  const VectorXd fresh = flip(e.x);
  REQUIRE(Log::destination == fresh.data());
  y = flip(e.x);
  REQUIRE(Log::destination != y.data());
  MatrixXd a = MatrixXd::Zero(5, 3);
  a.col(2).noalias() = flip(e.x);
  REQUIRE(Log::destination == a.col(2).data());
  REQUIRE(a.col(2) == e.flipped);
  Eigen::ArrayXd array(5);
  array.matrix().noalias() = flip(e.x);
  REQUIRE(Log::destination == array.data());
  array = flip(e.x);
  REQUIRE(array.matrix() == e.flipped);
  const Eigen::ArrayXd fresh_array = flip(e.x);
  REQUIRE(Log::destination == fresh_array.data());
}

TEST_CASE("aliasing is assumed", "[core]") {
  Example e;
  VectorXd y = e.x;
  y = flip(y);
  REQUIRE(y == e.flipped);
  y = e.x;
  y = y + flip(y);
  REQUIRE(y == e.x + e.flipped);
  y = e.x;
  y -= flip(y);
  REQUIRE(y == e.x - e.flipped);
  y = e.x;
  y = flip(y.head(2));  // and resized
  REQUIRE(y == e.x.head(2).reverse());
  MatrixXd a = e.x.replicate(1, 5);
  const MatrixXd before = a;
  a = flip(a.transpose());
  REQUIRE(a == before.transpose().colwise().reverse());
}

TEST_CASE("an expression under auto owns temporaries, refers to named objects and copies expressions", "[core]") {
  Example e;
  const auto owned = flip(VectorXd(e.x));
  const auto nested = 2 * flip(flip(VectorXd(e.x)));
  const auto transposed = flip(VectorXd(e.x)).transpose();
  const auto segment = flip(VectorXd(e.x)).segment(1, 2);
  const std::vector<VectorXd> churn(64, VectorXd::Constant(5, 99));
  REQUIRE(owned.eval() == e.flipped);
  REQUIRE(nested.eval() == 2 * e.x);
  REQUIRE(transposed.eval() == e.flipped.transpose());
  REQUIRE(segment.eval() == e.flipped.segment(1, 2));
  const auto named = flip(e.x);
  e.x.setZero();
  REQUIRE(named.eval() == VectorXd::Zero(5));
}

TEST_CASE("members are answered by the operation where it has a rule", "[core]") {
  Example e;
  const VectorXd y = test::Random(2).vector(5);
  const auto product_of = [&] { return flip(e.x).dot(flip(y)); };
  REQUIRE(evaluations_of([&] { REQUIRE(product_of() == e.x.dot(y)); }) == 0);
  REQUIRE(evaluations_of([&] { REQUIRE(flip(e.x).norm() == e.x.norm()); }) == 0);
  REQUIRE(evaluations_of([&] { REQUIRE(flip(e.x).squaredNorm() == e.x.squaredNorm()); }) == 0);
  REQUIRE(evaluations_of([&] { REQUIRE(flip(e.x).dot(y) == e.flipped.dot(y)); }) == 1);
  REQUIRE(evaluations_of([&] { REQUIRE(flip(e.x).sum() == e.flipped.sum()); }) == 1);
}

TEST_CASE("an expression of one entry is a number", "[core]") {
  const Eigen::Matrix<double, 1, 1> one(3);
  const double value = flip(one);
  REQUIRE(value == 3);
  static_assert(std::convertible_to<decltype(flip(one)), double>);
  static_assert(!std::convertible_to<Named, double>);
}

TEST_CASE("owning products and transposes keep what came as a temporary", "[core]") {
  Example e;
  const MatrixXd a = test::Random(3).matrix(4, 5);
  const auto product = detail::owning_product<MatrixXd, VectorXd>(MatrixXd(a), VectorXd(e.x));
  const auto transposed = detail::owning_transpose<MatrixXd>(MatrixXd(a));
  const auto inner = detail::owning_product<Eigen::RowVectorXd, VectorXd>(e.x.transpose(), VectorXd(e.x));
  const std::vector<MatrixXd> churn(64, MatrixXd::Constant(4, 5, 99));
  REQUIRE(product.eval() == a * e.x);
  REQUIRE(product.rows() == 4);
  REQUIRE(product.cols() == 1);
  REQUIRE(transposed.eval() == a.transpose());
  REQUIRE(transposed.rows() == 5);
  REQUIRE(transposed.cols() == 4);
  REQUIRE(double(inner) == e.x.dot(e.x));
}
