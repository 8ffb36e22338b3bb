// A class template that turns an operation into an Eigen expression. It evaluates on assignment, straight into the
// destination, and is safe under `auto` and aliasing.
#pragma once

#include <sympow/core/concepts.hpp>

namespace SYMPOW_NAMESPACE {

template <class Op>
class LazyExpression;

namespace detail {

// How an expression stores its operand: it owns a temporary, refers to a named plain object, and copies a named
// expression.
template <class X>
struct operand {
  using type = const expression_t<X>;
};
template <class X>
struct operand<X&> {
  using type = typename Eigen::internal::ref_selector<expression_t<X>>::type;
};

}  // namespace detail

/// The member type for an operand that arrives as `X&&`.
template <MatrixExpression X>
using operand_t = typename detail::operand<X>::type;

/// Whether T is a `LazyExpression`.
template <class T>
inline constexpr bool is_lazy_expression = false;
template <class Op>
inline constexpr bool is_lazy_expression<LazyExpression<Op>> = true;

}  // namespace SYMPOW_NAMESPACE

namespace Eigen::internal {

// Without NestByRefBit an enclosing expression copies a lazy one, so nothing dangles.
template <class Op>
struct traits<sympow::LazyExpression<Op>> : traits<typename Op::PlainObject> {
  enum { Flags = traits<typename Op::PlainObject>::Flags & RowMajorBit };
};

// Inside a larger expression the operation runs once, into a temporary.
template <class Op>
struct evaluator<sympow::LazyExpression<Op>> : evaluator<typename Op::PlainObject> {
  using XprType = sympow::LazyExpression<Op>;
  using PlainObject = typename Op::PlainObject;
  using Base = evaluator<PlainObject>;
  enum { Flags = Base::Flags | EvalBeforeNestingBit };

  explicit evaluator(const XprType& expression) : result_(expression.rows(), expression.cols()) {
    ::new (static_cast<void*>(static_cast<Base*>(this))) Base(result_);
    expression.op().evalTo(result_);
  }

 protected:
  PlainObject result_;
};

template <class Op>
struct evaluator_assume_aliasing<sympow::LazyExpression<Op>> {
  static const bool value = true;
};

// As the whole right side (after `noalias`, or for a new object) it writes into the destination.
template <class Destination, class Op, class To, class From>
struct Assignment<Destination, sympow::LazyExpression<Op>, assign_op<To, From>, Dense2Dense> {
  static void run(Destination& destination, const sympow::LazyExpression<Op>& source, const assign_op<To, From>&) {
    if (destination.rows() != source.rows() || destination.cols() != source.cols())
      destination.resize(source.rows(), source.cols());
    if constexpr (sympow::MatrixExpression<Destination>) {
      source.op().evalTo(destination);
    } else {  // an array
      auto matrix = destination.matrix();
      source.op().evalTo(matrix);
    }
  }
};

}  // namespace Eigen::internal

namespace SYMPOW_NAMESPACE {

/// An operation as an Eigen expression.
///
/// `Op` holds its operands (as `operand_t`) and provides
///
///     using PlainObject = Eigen::Matrix<...>;         the type of the result
///     Index rows() const;  Index cols() const;
///     template <class Destination> void evalTo(Destination& y) const;   y has the right shape, no overlap
///
/// It may also provide `dot(other)`, `squaredNorm()` and `norm()`, which replace Eigen's members of that name. Cost:
/// one evaluation per assignment; one temporary inside a larger expression. The function that builds the Op checks the
/// shapes.
template <class Op>
class LazyExpression : public Eigen::internal::dense_xpr_base<LazyExpression<Op>>::type,
                       Eigen::internal::no_assignment_operator {
 public:
  using Base = typename Eigen::internal::dense_xpr_base<LazyExpression>::type;
  EIGEN_DENSE_PUBLIC_INTERFACE(LazyExpression)

  /// Wraps an operation.
  explicit LazyExpression(Op op) : op_(std::move(op)) {}

  [[nodiscard]] Index rows() const { return op_.rows(); }
  [[nodiscard]] Index cols() const { return op_.cols(); }
  /// The operation.
  [[nodiscard]] const Op& op() const { return op_; }

  /// The transpose, a read-only expression; `transpose() * other` selects the operation's own product if it has one.
  [[nodiscard]] auto transpose() const { return Eigen::Transpose<const LazyExpression>(*this); }

  /// Inner product with a vector, by `Op::dot` if it accepts this partner.
  template <class Other>
  [[nodiscard]] auto dot(const Eigen::MatrixBase<Other>& other) const {
    if constexpr (requires { op_.dot(other.derived()); })
      return op_.dot(other.derived());
    else
      return Base::dot(other);
  }

  /// Sum of squares, by `Op::squaredNorm` if there is one.
  [[nodiscard]] auto squaredNorm() const {
    if constexpr (requires { op_.squaredNorm(); })
      return op_.squaredNorm();
    else
      return Base::squaredNorm();
  }

  /// Euclidean norm, by `Op::norm` if there is one.
  [[nodiscard]] auto norm() const {
    if constexpr (requires { op_.norm(); })
      return op_.norm();
    else
      return Base::norm();
  }

  /// The value of a 1 × 1 expression.
  operator Scalar() const  // NOLINT(google-explicit-constructor): as Eigen's inner products
    requires(Op::PlainObject::RowsAtCompileTime == 1 && Op::PlainObject::ColsAtCompileTime == 1)
  {
    typename Op::PlainObject value;
    op_.evalTo(value);
    return value(0, 0);
  }

 private:
  Op op_;
};

namespace detail {

template <class A, class B>
struct OwningProduct {
  using PlainObject =
      Eigen::Matrix<scalar_t<A>, expression_t<A>::RowsAtCompileTime, expression_t<B>::ColsAtCompileTime>;
  operand_t<A> a;
  operand_t<B> b;
  Index rows() const { return a.rows(); }
  Index cols() const { return b.cols(); }
  template <class Destination>
  void evalTo(Destination& y) const {
    y.noalias() = a * b;
  }
};

template <class A>
struct OwningTranspose {
  using PlainObject =
      Eigen::Matrix<scalar_t<A>, expression_t<A>::ColsAtCompileTime, expression_t<A>::RowsAtCompileTime>;
  operand_t<A> a;
  Index rows() const { return a.cols(); }
  Index cols() const { return a.rows(); }
  template <class Destination>
  void evalTo(Destination& y) const {
    y = a.transpose();
  }
};

/// a * b as an expression that owns temporaries, unlike Eigen's product. A and B are the forwarding types of the
/// operands, so a rule that rebuilds an expression keeps their ownership.
template <class A, class B>
auto owning_product(const expression_t<A>& a, const expression_t<B>& b) {
  return LazyExpression(OwningProduct<A, B>{a, b});
}

/// aᵀ as an expression that owns temporaries.
template <class A>
auto owning_transpose(const expression_t<A>& a) {
  return LazyExpression(OwningTranspose<A>{a});
}

}  // namespace detail
}  // namespace SYMPOW_NAMESPACE
