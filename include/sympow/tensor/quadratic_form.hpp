// The quadratic form z·φ²(x) as a matrix.
#pragma once

#include <numbers>

#include <sympow/core/view.hpp>

namespace SYMPOW_NAMESPACE::detail {

/// The symmetric matrix M of the quadratic form with coefficients z in the basis of φ²,
///
///     z·φ²(x) = ½ xᵀ M x,   Dφ²(x)ᵀ z = M x:   M_ii = 2 z_ii,   M_ij = M_ji = √2 z_ij
///
/// Shapes: z is d (d + 1)/2, M is d × d. Source: the entries of φ² are x_i² and √2 x_i x_j.
template <class Scalar>
void set_quadratic_form(ColumnView<const Scalar> z, MatrixView<Scalar> M) {
  constexpr auto sqrt2 = static_cast<Scalar>(std::numbers::sqrt2);
  Index entry = 0;
  for (Index i = 0; i < M.cols(); ++i) {
    M(i, i) = 2 * z[entry++];
    for (Index j = i + 1; j < M.rows(); ++j) M(j, i) = M(i, j) = sqrt2 * z[entry++];
  }
}

}  // namespace SYMPOW_NAMESPACE::detail
