// Dense products, solutions, norms and singular values as functions that give matrices and can be compiled once.
#pragma once

#include <Eigen/LU>
#include <Eigen/QR>
#include <Eigen/SVD>

#include <algorithm>
#include <limits>

#include <sympow/core/product.hpp>

namespace SYMPOW_NAMESPACE::detail {

/// A B of expressions with their entries in memory, such as a matrix or its transpose. For Eigen every pair of such
/// types is classes of its own; this is one function for all.
template <class A, class B>
[[nodiscard]] Matrix<typename A::Scalar> times(const A& a, const B& b) {
  Matrix<typename A::Scalar> c(a.rows(), b.cols());
  set_product(c, a, b);
  return c;
}

/// √Σ x_i² of any size, of entries side by side: the norm of a vector, Frobenius' of a matrix.
template <class S>
[[nodiscard]] S stable_norm(const S* x, Index size) {
  return Eigen::Map<const Vector<S>>(x, size).stableNorm();
}

/// A square matrix, factored once by LU with partial pivots. Cost: 2/3 n³, and 2 n² a column of a solution.
template <class S>
class Factored {
 public:
  explicit Factored(const Matrix<S>& A);

  [[nodiscard]] Index size() const { return lu_.rows(); }              ///< n
  [[nodiscard]] Matrix<S> solve(const Matrix<S>& B) const;             ///< A⁻¹ B
  [[nodiscard]] Matrix<S> solve_transposed(const Matrix<S>& B) const;  ///< A⁻ᵀ B
  [[nodiscard]] S determinant() const;                                 ///< det A

 private:
  Eigen::PartialPivLU<Matrix<S>> lu_;
};

template <class S>
Factored<S>::Factored(const Matrix<S>& A) : lu_(A) {}
template <class S>
Matrix<S> Factored<S>::solve(const Matrix<S>& B) const {
  return lu_.solve(B);
}
template <class S>
Matrix<S> Factored<S>::solve_transposed(const Matrix<S>& B) const {
  return lu_.transpose().solve(B);
}
template <class S>
S Factored<S>::determinant() const {
  return lu_.determinant();
}

/// Jacobi's method for square matrices, which finds small singular values as exactly as large ones. Cost: O(n³).
template <class Real>
using Jacobi = Eigen::JacobiSVD<Matrix<Real>, Eigen::NoQRPreconditioner>;

/// A = U diag(σ) Vᵀ of a square matrix, the largest σ first; NaN unless A is finite.
template <class Real>
struct SquareSvd {
  Matrix<Real> U, V;  ///< orthogonal, n × n each

  explicit SquareSvd(const Matrix<Real>& A);
};

template <class Real>
SquareSvd<Real>::SquareSvd(const Matrix<Real>& A) {
  const Jacobi<Real> svd(A, Eigen::ComputeFullU | Eigen::ComputeFullV);
  if (svd.info() == Eigen::Success) {
    U = svd.matrixU();
    V = svd.matrixV();
  } else {
    U = V = Matrix<Real>::Constant(A.rows(), A.cols(), std::numeric_limits<Real>::quiet_NaN());
  }
}

/// The singular values of a matrix, the largest first; none of an empty one, NaN unless it is finite. Cost: O(max(m, n)
/// min(m, n)²).
template <class Real>
[[nodiscard]] Vector<Real> singular_values(const Matrix<Real>& A) {
  const Index n = std::min(A.rows(), A.cols());
  if (n == 0) return {};
  Matrix<Real> square = A;
  if (A.rows() != A.cols()) {  // R of the taller one
    if (A.cols() > n) square.transposeInPlace();
    square = Matrix<Real>(Eigen::ColPivHouseholderQR<Matrix<Real>>(square).matrixR().topRows(n));
    for (Index j = 0; j < n; ++j)
      for (Index i = j + 1; i < n; ++i) square(i, j) = 0;
  }
  const Jacobi<Real> svd(square);
  if (svd.info() != Eigen::Success) return Vector<Real>::Constant(n, std::numeric_limits<Real>::quiet_NaN());
  return svd.singularValues();
}

}  // namespace SYMPOW_NAMESPACE::detail

/// The functions for one type: with `extern` they are compiled elsewhere, with nothing here.
#define SYMPOW_LINEAR_ALGEBRA(LINKAGE, S)                                                                       \
  namespace sympow::detail {                                                                                    \
  LINKAGE template S dot_product(const S*, const S*, Index);                                                    \
  LINKAGE template void multiply_rows(bool, Index, Index, Strided<const S*>, const S*, Strided<S*>);            \
  LINKAGE template void multiply(bool, Index, Index, Index, Strided<const S*>, Strided<const S*>, Strided<S*>); \
  LINKAGE template void product(bool, Index, Index, Index, Strided<const S*>, Strided<const S*>, Strided<S*>);  \
  LINKAGE template S stable_norm(const S*, Index);                                                              \
  LINKAGE template class Factored<S>;                                                                           \
  }

/// Singular values, which are wanted in double only.
#define SYMPOW_SINGULAR_VALUES(LINKAGE, Real)                         \
  namespace sympow::detail {                                          \
  LINKAGE template struct SquareSvd<Real>;                            \
  LINKAGE template Vector<Real> singular_values(const Matrix<Real>&); \
  }

#ifdef SYMPOW_COMPILED_FORMS
SYMPOW_LINEAR_ALGEBRA(extern, float)
SYMPOW_LINEAR_ALGEBRA(extern, double)
SYMPOW_SINGULAR_VALUES(extern, double)
#endif
