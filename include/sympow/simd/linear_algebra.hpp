// Dense products, solves, norms and singular values as functions that return matrices and can be compiled once.
#pragma once

#include <Eigen/LU>
#include <Eigen/QR>
#include <Eigen/SVD>

#include <algorithm>
#include <limits>

#include <sympow/simd/product.hpp>

namespace SYMPOW_NAMESPACE::detail {

/// A B of expressions in memory, such as a matrix or its transpose. One function serves all types; Eigen would
/// instantiate a product for each pair.
template <class A, class B>
[[nodiscard]] Matrix<typename A::Scalar> times(const A& a, const B& b) {
  Matrix<typename A::Scalar> c(a.rows(), b.cols());
  set_product(c, a, b);
  return c;
}

/// √Σ x_i² of contiguous entries, without overflow: Euclidean norm of a vector, Frobenius norm of a matrix.
template <class S>
[[nodiscard]] S stable_norm(const S* x, Index size) {
  return Eigen::Map<const Vector<S>>(x, size).stableNorm();
}

/// LU factors with partial pivoting of a square matrix. Cost: 2/3 n³, and 2 n² per column of a solution.
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

/// Jacobi SVD of square matrices; small singular values keep their relative accuracy. Cost: O(n³).
template <class Real>
using Jacobi = Eigen::JacobiSVD<Matrix<Real>, Eigen::NoQRPreconditioner>;

/// A = U diag(σ) Vᵀ of a square matrix, σ descending; NaN unless A is finite.
template <class Real>
struct SquareSvd {
  Matrix<Real> U, V;  ///< orthogonal, n × n

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

/// Singular values of A, descending; empty for an empty matrix, NaN unless A is finite. Cost: O(max(m, n) min(m, n)²).
template <class Real>
[[nodiscard]] Vector<Real> singular_values(const Matrix<Real>& A) {
  const Index n = std::min(A.rows(), A.cols());
  if (n == 0) return {};
  Matrix<Real> square = A;
  if (A.rows() != A.cols()) {  // R of the taller of A and Aᵀ
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

/// Explicit instantiations for one scalar type; LINKAGE is `extern` where another file compiles them.
#define SYMPOW_LINEAR_ALGEBRA(LINKAGE, S)          \
  namespace sympow::detail {                       \
  LINKAGE template S stable_norm(const S*, Index); \
  LINKAGE template class Factored<S>;              \
  }

/// Singular values, needed in double only.
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
