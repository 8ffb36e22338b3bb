// Validation of skew matrices.
#pragma once

#include <cmath>
#include <limits>
#include <string>

#include <sympow/core/checks.hpp>
#include <sympow/simd/linear_algebra.hpp>

namespace SYMPOW_NAMESPACE::detail {

/// (S - Sᵀ)/2 of entries with unit roundoff `unit`.
template <class Real>
[[nodiscard]] Matrix<Real> checked_skew(const std::string& name, const Matrix<Real>& S, double unit) {
  const Index d = S.rows();
  check_size("columns of " + name, S.cols(), d, "its rows");
  Matrix<Real> sum(d, d), skew(d, d);
  for (Index j = 0; j < d; ++j)
    for (Index i = 0; i < d; ++i) {
      if (!std::isfinite(S(i, j))) raise<NotFinite>(name, " has an entry that is not finite");
      sum(i, j) = S(i, j) + S(j, i);
      skew(i, j) = S(i, j) / 2 - S(j, i) / 2;
    }
  const double asymmetry = stable_norm<Real>(sum.data(), sum.size()),
               allowed = 8 * static_cast<double>(d) * unit * stable_norm<Real>(S.data(), S.size());
  if (asymmetry > allowed) raise<NotSkew>(name, ": |S + S^T| is ", asymmetry, ", must be at most ", allowed);
  return skew;
}

/// (S - Sᵀ)/2 in double. Throws `ShapeMismatch` unless S is square, `NotFinite`, and `NotSkew` unless ‖S + Sᵀ‖ ≤ 8 d u
/// ‖S‖.
template <MatrixExpression X>
[[nodiscard]] Eigen::MatrixXd checked_skew(const std::string& name, const X& S) {
  constexpr double unit = static_cast<double>(std::numeric_limits<scalar_t<X>>::epsilon()) / 2;
  return checked_skew<double>(name, S.template cast<double>(), unit);
}

}  // namespace SYMPOW_NAMESPACE::detail

/// Explicit instantiation in double; LINKAGE is `extern` where another file compiles it.
#define SYMPOW_CHECKED_SKEW(LINKAGE)                                                               \
  namespace sympow::detail {                                                                       \
  LINKAGE template Matrix<double> checked_skew(const std::string&, const Matrix<double>&, double); \
  }

#ifdef SYMPOW_COMPILED_FORMS
SYMPOW_CHECKED_SKEW(extern)
#endif
