// Singular values, by one function that can be compiled once.
#pragma once

#include <Eigen/SVD>

#include <sympow/core/concepts.hpp>

namespace sympow::detail {

/// The singular values of a matrix, the largest first; none of an empty one. Cost: O(n³), by Jacobi's method.
template <class Real>
[[nodiscard]] Vector<Real> singular_values(const Matrix<Real>& A) {
  if (A.size() == 0) return {};
  return Eigen::JacobiSVD<Matrix<Real>>(A).singularValues();
}

}  // namespace sympow::detail

#ifdef SYMPOW_COMPILED_FORMS
extern template sympow::Vector<double> sympow::detail::singular_values(const sympow::Matrix<double>&);
#endif
