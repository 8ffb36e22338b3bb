// How much a matrix can lengthen a vector.
#pragma once

#include <Eigen/SVD>

#include <sympow/core/concepts.hpp>

namespace sympow::verify::detail {

/// The largest singular value, 0 for an empty matrix.
template <class Scalar>
[[nodiscard]] double spectral_norm(const Matrix<Scalar>& A) {
  if (A.size() == 0) return 0;
  return static_cast<double>(Eigen::JacobiSVD<Matrix<Scalar>>(A).singularValues()[0]);
}

}  // namespace sympow::verify::detail
