// What both embeddings of x ⊗ … ⊗ x share: lazy evaluation, and inner products as powers.
#pragma once

#include <sympow/combinatorics/binomial.hpp>
#include <sympow/core/lazy_expression.hpp>
#include <sympow/simd/integer_power.hpp>

namespace SYMPOW_NAMESPACE::detail {

/// Calls f(std::integral_constant<int, p>). Throws `InvalidPower` unless 1 ≤ p ≤ 8.
template <class F>
void with_power(int p, F&& f) {
  const bool found = [&]<int... P>(std::integer_sequence<int, P...>) {
    return ((p == P + 1 && (f(std::integral_constant<int, P + 1>{}), true)) || ...);
  }(std::make_integer_sequence<int, max_power>{});
  if (!found) raise<InvalidPower>("power p = ", p, " must lie in 1 … ", max_power);
}

/// φ(x) for every column x. `Embedding` (tensor or symmetric power) provides static `dimension(d, p)` and `fill<P>(X,
/// Y)`; P is Dynamic for a run-time power.
template <class Embedding, int P, class X>
struct Embedded {
  using Scalar = scalar_t<X>;
  static constexpr int source_rows = expression_t<X>::RowsAtCompileTime;
  static constexpr int target_rows = [] {  // fixed if x and p are, and a column fits a page
    if constexpr (source_rows != Dynamic && P != Dynamic)
      if constexpr (constexpr Index size = Embedding::dimension(source_rows, P); size * Index(sizeof(Scalar)) <= 4096)
        return static_cast<int>(size);
    return Dynamic;
  }();
  using PlainObject = Eigen::Matrix<Scalar, target_rows, expression_t<X>::ColsAtCompileTime>;

  operand_t<X> x;
  int p;
  Index dimension;

  Index rows() const { return dimension; }
  Index cols() const { return x.cols(); }

  template <class Destination>
  void evalTo(Destination& y) const {
    const ConstBatch<Scalar> source(x);  // evaluates an expression once, not per column
    const auto run = [&]<int Power>(std::integral_constant<int, Power>) { Embedding::template fill<Power>(source, y); };
    if constexpr (P == Dynamic)
      with_power(p, run);
    else
      run(std::integral_constant<int, P>{});
  }

  // φ(x)·φ(y) = (x·y)^p
  template <int OtherP, class Y>
  Scalar dot(const LazyExpression<Embedded<Embedding, OtherP, Y>>& other) const {
    static_assert(P == OtherP || P == Dynamic || OtherP == Dynamic,
                  "the inner product of two different powers of embeddings is not defined: their dimensions differ");
    check_size("power of the right embedding", other.op().p, p, "power of the left embedding");
    check_size("rows of the right operand", other.op().x.rows(), x.rows(), "rows of the left operand");
    return integer_power(Scalar(x.dot(other.op().x)), p);
  }
  Scalar squaredNorm() const
    requires(expression_t<X>::ColsAtCompileTime == 1)
  {
    return integer_power(Scalar(x.squaredNorm()), p);
  }
  Scalar norm() const
    requires(expression_t<X>::ColsAtCompileTime == 1)
  {
    return integer_power(Scalar(x.norm()), p);
  }
};

/// φ(X)ᵀ φ(Y) = (XᵀY)^∘p: a product and a power per entry instead of two embeddings.
template <class X, class Y>
struct PowerGram {
  using Scalar = scalar_t<X>;
  using PlainObject = Eigen::Matrix<Scalar, expression_t<X>::ColsAtCompileTime, expression_t<Y>::ColsAtCompileTime>;
  operand_t<X> x;
  operand_t<Y> y;
  int p;
  Index rows() const { return x.cols(); }
  Index cols() const { return y.cols(); }
  template <class Destination>
  void evalTo(Destination& gram) const {
    gram.noalias() = x.transpose() * y;
    gram = gram.unaryExpr(RaiseTo{p});
  }
};

/// The embedding of the columns of x as an expression. Throws `InvalidPower` and `DimensionOverflow` immediately.
template <class Embedding, int P, MatrixExpression X>
auto make_embedding(X&& x, int p) {
  static_assert(expression_t<X>::RowsAtCompileTime != 1 || expression_t<X>::ColsAtCompileTime == 1,
                "an embedding takes columns: this is a row vector, transpose it");
  static_assert(P == Dynamic || (1 <= P && P <= max_power), "the power must lie in 1 … 8");
  if (p < 1 || p > max_power) raise<InvalidPower>("power p = ", p, " must lie in 1 … ", max_power);
  const Index dimension = Embedding::dimension(x.rows(), p);
  return LazyExpression(Embedded<Embedding, P, X>{std::forward<X>(x), p, dimension});
}

}  // namespace SYMPOW_NAMESPACE::detail

namespace SYMPOW_NAMESPACE {

/// φ(X)ᵀ φ(Y) = (XᵀY)^∘p. Cost: 2 d n m and n m powers. Source: Symmetric Power Transformers, Result 1 and §4.2.
template <class Embedding, int P, class X, int Q, class Y>
[[nodiscard]] auto operator*(const Eigen::Transpose<const LazyExpression<detail::Embedded<Embedding, P, X>>>& left,
                             const LazyExpression<detail::Embedded<Embedding, Q, Y>>& right) {
  static_assert(P == Q || P == Dynamic || Q == Dynamic,
                "the inner product of two different powers of embeddings is not defined: their dimensions differ");
  const auto& x = left.nestedExpression().op();
  const auto& y = right.op();
  detail::check_size("power of the right embedding", y.p, x.p, "power of the left embedding");
  detail::check_size("rows of the right operand", y.x.rows(), x.x.rows(), "rows of the left operand");
  return LazyExpression(detail::PowerGram<X, Y>{x.x, y.x, x.p});
}

}  // namespace SYMPOW_NAMESPACE
