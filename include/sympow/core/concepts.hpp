// Concepts and aliases for Eigen's matrices and vectors.
#pragma once

#include <Eigen/Core>
#include <concepts>
#include <type_traits>
#include <utility>

#include <sympow/core/config.hpp>
#include <sympow/core/exact_scalar.hpp>

namespace SYMPOW_NAMESPACE {
static_assert(std::same_as<Index, Eigen::Index>,
              "sympow needs Eigen's own index type: compile without EIGEN_DEFAULT_DENSE_INDEX_TYPE");
static_assert(
    !Eigen::MatrixXd::IsRowMajor,
    "sympow keeps tokens in columns: compile without EIGEN_DEFAULT_TO_ROW_MAJOR, and name Eigen::RowMajor where "
    "you need it");
static_assert(Dynamic == Eigen::Dynamic);

namespace detail {
template <class Derived>
std::type_identity<Derived> canonical(const Eigen::MatrixBase<Derived>&);
}  // namespace detail

/// Anything that Eigen treats as a matrix: plain objects, maps, blocks, lazy expressions. It includes `x.head(3)`,
/// whose class derives from the matrix base of another class.
template <class T>
concept MatrixExpression = requires(const std::remove_cvref_t<T>& t) { detail::canonical(t); };

/// The class whose matrix base `T` derives from: `Block` for `VectorBlock`, T itself otherwise.
template <MatrixExpression T>
using expression_t = typename decltype(detail::canonical(std::declval<const std::remove_cvref_t<T>&>()))::type;

/// A matrix expression with one column at compile time.
template <class T>
concept VectorExpression = MatrixExpression<T> && expression_t<T>::ColsAtCompileTime == 1;

/// The scalar type of an expression.
template <MatrixExpression T>
using scalar_t = typename expression_t<T>::Scalar;

/// Column-major matrix of run-time shape: one token a column.
template <class Scalar>
using Matrix = Eigen::Matrix<Scalar, Dynamic, Dynamic>;

/// Column vector of run-time length.
template <class Scalar>
using Vector = Eigen::Matrix<Scalar, Dynamic, 1>;

/// Read-only view of a column-major batch with any column stride. Binds without a copy to matrices, blocks of columns
/// or rows, and maps with an outer stride.
template <class Scalar>
using ConstBatch = Eigen::Ref<const Matrix<Scalar>, 0, Eigen::OuterStride<>>;

/// Writable view of the same kind; pass it by value.
template <class Scalar>
using Batch = Eigen::Ref<Matrix<Scalar>, 0, Eigen::OuterStride<>>;

}  // namespace SYMPOW_NAMESPACE
