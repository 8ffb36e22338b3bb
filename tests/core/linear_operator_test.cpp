// LinearOperator with operators of its own: a rectangular one, and an orthogonal one that counts its applications.
#include <vector>

#include <sympow/core/linear_operator.hpp>

#include "catch.hpp"
#include "distance.hpp"
#include "random.hpp"

namespace {

template <bool Transposed>
class Difference;
class Cycle;

}  // namespace

namespace sympow {

template <bool Transposed>
struct operator_traits<Difference<Transposed>> {
  using Scalar = double;
};
template <>
struct operator_traits<Cycle> {
  using Scalar = double;
};

}  // namespace sympow

using namespace sympow;
using Eigen::MatrixXd, Eigen::VectorXd, Eigen::RowVectorXd;
using sympow::test::contains, sympow::test::unit, sympow::test::distance;

namespace {

/// (x_2 - x_1, …, x_n - x_{n-1}): n - 1 rows, n columns.
template <bool Transposed>
class Difference : public LinearOperator<Difference<Transposed>> {
 public:
  explicit Difference(Index n) : n_(n) {}
  Index rows() const { return Transposed ? n_ : n_ - 1; }
  Index cols() const { return Transposed ? n_ - 1 : n_; }
  Difference<!Transposed> transpose() const { return Difference<!Transposed>(n_); }
  template <class X, class Y>
  void apply(const X& x, Y&& y) const {
    if constexpr (Transposed) {
      y.setZero();
      y.bottomRows(n_ - 1) += x;
      y.topRows(n_ - 1) -= x;
    } else {
      y = x.bottomRows(n_ - 1) - x.topRows(n_ - 1);
    }
  }

 private:
  Index n_;
};

/// Moves every entry `by` places down, around the end.
class Cycle : public LinearOperator<Cycle> {
 public:
  static constexpr bool is_orthogonal = true;
  static inline int applications = 0;

  Cycle(Index n, Index by) : n_(n), by_(by) {}
  Index rows() const { return n_; }
  Index cols() const { return n_; }
  Cycle transpose() const { return {n_, n_ - by_}; }
  friend bool operator==(const Cycle& a, const Cycle& b) { return a.n_ == b.n_ && a.by_ == b.by_; }
  template <class X, class Y>
  void apply(const X& x, Y&& y) const {
    ++applications;
    y.bottomRows(n_ - by_) = x.topRows(n_ - by_);
    y.topRows(by_) = x.bottomRows(by_);
  }

 private:
  Index n_, by_;
};

static_assert(StructuredOperator<Cycle> && StructuredOperator<const Difference<false>&>);
static_assert(!StructuredOperator<MatrixXd> && !StructuredOperator<int> && !MatrixExpression<Cycle>);
static_assert(detail::Orthogonal<const Cycle&> && !detail::Orthogonal<Difference<false>>);
static_assert(is_lazy_expression<decltype(std::declval<Cycle>() * std::declval<VectorXd>())>);

MatrixXd dense_difference(Index n) {
  MatrixXd dense = MatrixXd::Zero(n - 1, n);
  dense.diagonal(0).setConstant(-1);
  dense.diagonal(1).setConstant(1);
  return dense;
}

}  // namespace

TEST_CASE("an operator is a dense matrix where one is asked for", "[core]") {
  const Difference<false> D(5);
  const MatrixXd expected = dense_difference(5);
  REQUIRE(D.toDenseMatrix() == expected);
  REQUIRE(D.transpose().toDenseMatrix() == expected.transpose());
  const MatrixXd constructed = D;
  REQUIRE(constructed == expected);
  MatrixXd a = MatrixXd::Ones(4, 5);
  a += D;
  REQUIRE(a == MatrixXd::Ones(4, 5) + expected);
  a -= D;
  REQUIRE(a == MatrixXd::Ones(4, 5));
  a = D;
  REQUIRE(a == expected);
}

TEST_CASE("a rectangular operator multiplies from both sides", "[core]") {
  const Difference<false> D(5);
  const MatrixXd dense = D;
  test::Random random(1);
  const MatrixXd x = random.matrix(5, 3), w = random.matrix(3, 4);
  REQUIRE((D * x).eval() == dense * x);  // differences of two, without rounding twice
  REQUIRE((D * x).rows() == 4);
  REQUIRE((D * x).cols() == 3);
  const MatrixXd right = w * D;
  REQUIRE(right == w * dense);
  const RowVectorXd row = w.row(0) * D;
  REQUIRE(row == w.row(0) * dense);
  REQUIRE((D.transpose() * x.topRows(4)).eval() == dense.transpose() * x.topRows(4));
  MatrixXd own = x;
  own = D * own;  // resized
  REQUIRE(own == dense * x);
}

TEST_CASE("products own the operators and operands that were temporaries", "[core]") {
  const VectorXd x = test::Random(2).vector(6);
  const auto moved = Cycle(6, 2) * VectorXd(x);
  const auto differences = Difference<false>(6) * (Cycle(6, 1) * VectorXd(x));
  const auto right = RowVectorXd(x.transpose()) * Cycle(6, 2);
  const std::vector<VectorXd> churn(64, VectorXd::Constant(6, 99));
  VectorXd expected(6);
  expected << x.tail(2), x.head(4);
  REQUIRE(moved.eval() == expected);
  REQUIRE(differences.eval()(0) == x[0] - x[5]);
  REQUIRE(right.eval()(0) == x[2]);
}

TEST_CASE("an operator that goes by reference is not copied", "[core]") {
  const Cycle C(4, 1);
  const VectorXd x = VectorXd::Ones(4);
  const auto product = C * x;
  REQUIRE(&product.op().map == &C);
  REQUIRE(&product.op().x == &x);
}

TEST_CASE("orthogonal operators keep norms and inner products without being applied", "[core]") {
  const Cycle C(5, 2), same(5, 2), other(5, 1);
  const VectorXd x = test::Random(3).vector(5), y = test::Random(4).vector(5);
  const int before = Cycle::applications;
  REQUIRE((C * x).norm() == x.norm());
  REQUIRE((C * x).squaredNorm() == x.squaredNorm());
  REQUIRE((C * x).dot(C * y) == x.dot(y));
  REQUIRE((C * x).dot(same * y) == x.dot(y));
  REQUIRE((C * x).dot(Cycle(5, 2) * y) == x.dot(y));
  REQUIRE(Cycle::applications == before);
  REQUIRE((C * x).dot(other * y) == VectorXd(C * x).dot(VectorXd(other * y)));
  REQUIRE(Cycle::applications == before + 4);
  REQUIRE(std::abs((C * x).dot(other * y) - x.dot(y)) > .1);  // the rule would be wrong here
}

TEST_CASE("an operator that is not orthogonal evaluates norms and inner products", "[core]") {
  const Difference<false> D(5);
  const VectorXd x = test::Random(5).vector(5), y = test::Random(6).vector(5), image = D * x, other = D * y;
  REQUIRE((D * x).norm() == image.norm());
  REQUIRE((D * x).squaredNorm() == image.squaredNorm());
  REQUIRE((D * x).dot(D * y) == image.dot(other));
  REQUIRE(std::abs((D * x).norm() - x.norm()) > .1);
}

TEST_CASE("shapes that do not fit are refused when the product is built", "[core]") {
  const Difference<false> D(5);
  REQUIRE_THROWS_AS(D * VectorXd::Ones(4), ShapeMismatch);
  REQUIRE_THROWS_WITH(D * VectorXd::Ones(4),
                      contains("rows of the right factor is 4, must be 5 (columns of the operator)"));
  REQUIRE_THROWS_AS(RowVectorXd::Ones(5) * D, ShapeMismatch);
  REQUIRE_THROWS_AS(D * (D * VectorXd::Ones(5)), ShapeMismatch);
}
