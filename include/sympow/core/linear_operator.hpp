// Linear maps that are never stored as a matrix, and their products with Eigen's expressions.
#pragma once

#include <sympow/core/checks.hpp>
#include <sympow/core/lazy_expression.hpp>

namespace SYMPOW_NAMESPACE {

template <class Derived>
class LinearOperator;

/// Specialize before the operator's definition with `using Scalar = …`, so that Eigen knows the incomplete class.
template <class Operator>
struct operator_traits;

/// A class that derives from `LinearOperator` of itself.
template <class T>
concept StructuredOperator = requires { typename operator_traits<std::remove_cvref_t<T>>::Scalar; };

}  // namespace SYMPOW_NAMESPACE

namespace Eigen::internal {

struct SympowOperatorShape {};

template <class T>
  requires sympow::StructuredOperator<T> && (!std::is_const_v<T>)
struct traits<T> {
  using Scalar = typename sympow::operator_traits<T>::Scalar;
  using StorageIndex = int;
  using StorageKind = Dense;
  using XprKind = MatrixXpr;
  enum {
    RowsAtCompileTime = Dynamic,
    ColsAtCompileTime = Dynamic,
    MaxRowsAtCompileTime = Dynamic,
    MaxColsAtCompileTime = Dynamic,
    Flags = NestByRefBit
  };
};

template <sympow::StructuredOperator T>
struct evaluator_traits<T> : evaluator_traits_base<T> {
  using Shape = SympowOperatorShape;
};

}  // namespace Eigen::internal

namespace SYMPOW_NAMESPACE {

/// Base of linear maps in structured form (rotations, isometries, lifts).
///
/// The derived class provides `rows()`, `cols()` and `apply(x, y)`, which writes the image of the columns of x into y
/// (no overlap). It then multiplies any expression from the left, lazily, and converts to a matrix:
///
///     y = R * x;   y.noalias() = R * X;   MatrixXd M = R;   R.toDenseMatrix()
///
/// `auto y = R.pow(3) * x` owns the temporary operator. With `static constexpr bool is_orthogonal = true` and
/// operator==, `(R * x).norm()` is `x.norm()` and `(R * x).dot(R * y)` is `x.dot(y)`, without evaluating R.
template <class Derived>
class LinearOperator : public Eigen::EigenBase<Derived> {
 public:
  using Scalar = typename operator_traits<Derived>::Scalar;
  using RealScalar = typename Eigen::NumTraits<Scalar>::Real;
  using StorageIndex = int;
  enum {
    RowsAtCompileTime = Dynamic,
    ColsAtCompileTime = Dynamic,
    MaxRowsAtCompileTime = Dynamic,
    MaxColsAtCompileTime = Dynamic,
    IsRowMajor = false
  };
  using Eigen::EigenBase<Derived>::derived;

  /// The dense rows × cols matrix, for tests and small cases.
  [[nodiscard]] Matrix<Scalar> toDenseMatrix() const {
    Matrix<Scalar> dense(derived().rows(), derived().cols());
    evalTo(dense);
    return dense;
  }

  /// Writes the dense matrix into y.
  template <class Destination>
  void evalTo(Destination& y) const {
    derived().apply(Matrix<Scalar>::Identity(derived().cols(), derived().cols()), y);
  }
};

namespace detail {

template <class Operator>
concept Orthogonal = requires { requires std::remove_cvref_t<Operator>::is_orthogonal; };

// Owns a temporary operator, refers to a named one.
template <class Operator>
using held_operator_t = std::conditional_t<std::is_lvalue_reference_v<Operator>, const std::remove_cvref_t<Operator>&,
                                           const std::remove_cvref_t<Operator>>;

// R * x; Operator and X are forwarding types.
template <class Operator, class X>
struct Applied {
  using PlainObject = Eigen::Matrix<scalar_t<X>, Dynamic, expression_t<X>::ColsAtCompileTime>;
  using Scalar = scalar_t<X>;
  held_operator_t<Operator> map;
  operand_t<X> x;

  Index rows() const { return map.rows(); }
  Index cols() const { return x.cols(); }
  template <class Destination>
  void evalTo(Destination& y) const {
    map.apply(x, y);
  }

  // An orthogonal map preserves lengths and inner products.
  auto squaredNorm() const
    requires Orthogonal<Operator>
  {
    return x.squaredNorm();
  }
  auto norm() const
    requires Orthogonal<Operator>
  {
    return x.norm();
  }
  template <class OtherOperator, class Y>
    requires Orthogonal<Operator> && std::same_as<std::remove_cvref_t<Operator>, std::remove_cvref_t<OtherOperator>>
  Scalar dot(const LazyExpression<Applied<OtherOperator, Y>>& other) const {
    if (map == other.op().map) return x.dot(other.op().x);
    PlainObject left(rows(), 1), right(rows(), 1);
    evalTo(left);
    other.op().evalTo(right);
    return left.dot(right);
  }
};

template <class Operator, class X>
auto apply_operator(const std::remove_cvref_t<Operator>& map, const expression_t<X>& x) {
  static_assert(std::same_as<typename std::remove_cvref_t<Operator>::Scalar, scalar_t<X>>,
                "an operator and what it multiplies must have the same scalar type; use .cast<>()");
  check_size("rows of the right factor", x.rows(), map.cols(), "columns of the operator");
  return LazyExpression(Applied<Operator, X>{map, x});
}

template <class X, class Operator>
auto apply_from_right(const expression_t<X>& x, const Operator& map) {
  using Source = decltype(owning_transpose<X>(x));
  using Transposed = decltype(map.transpose());
  using Image = decltype(apply_operator<Transposed, Source>(map.transpose(), owning_transpose<X>(x)));
  return owning_transpose<Image>(apply_operator<Transposed, Source>(map.transpose(), owning_transpose<X>(x)));
}

}  // namespace detail

/// The image of the columns of X, lazily. Cost: that of the operator. Throws `ShapeMismatch` immediately unless X has
/// as many rows as the operator has columns.
template <class Operator, MatrixExpression X>
  requires StructuredOperator<Operator>
[[nodiscard]] auto operator*(Operator&& map, X&& x) {
  return detail::apply_operator<Operator, X>(map, x);
}

/// X R = (Rᵀ Xᵀ)ᵀ, lazily.
template <MatrixExpression X, class Operator>
  requires StructuredOperator<Operator>
[[nodiscard]] auto operator*(X&& x, const Operator& map) {
  return detail::apply_from_right<X>(x, map);
}

}  // namespace SYMPOW_NAMESPACE
