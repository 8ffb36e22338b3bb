// What counts as a skew matrix.
#pragma once

#include <limits>
#include <string>

#include <sympow/core/checks.hpp>
#include <sympow/core/concepts.hpp>

namespace sympow::detail {

/// (S - Sᵀ)/2 of the numbers of a type with unit roundoff u.
template <class Real>
[[nodiscard]] Matrix<Real> checked_skew(const std::string& name, const Matrix<Real>& S, double unit) {
  check_size("columns of " + name, S.cols(), S.rows(), "its rows");
  if (!S.allFinite()) raise<NotFinite>(name, " has an entry that is not finite");
  const double off = (S + S.transpose()).stableNorm(),
               allowed = 8 * static_cast<double>(S.rows()) * unit * S.stableNorm();
  if (off > allowed) raise<NotSkew>(name, ": |S + S^T| is ", off, ", must be at most ", allowed);
  return (S - S.transpose()) / 2;
}

/// (S - Sᵀ)/2 in double. Throws `ShapeMismatch` unless S is square, `NotFinite`, and `NotSkew` unless ‖S + Sᵀ‖ is rounding, 8 d u ‖S‖.
template <MatrixExpression X>
[[nodiscard]] Eigen::MatrixXd checked_skew(const std::string& name, const X& S) {
  constexpr double unit = static_cast<double>(std::numeric_limits<scalar_t<X>>::epsilon()) / 2;
  return checked_skew<double>(name, S.template cast<double>(), unit);
}

}  // namespace sympow::detail

/// The check in double: with `extern` it is compiled elsewhere.
#define SYMPOW_CHECKED_SKEW(LINKAGE)                                                                 \
  namespace sympow::detail {                                                                         \
  LINKAGE template Eigen::MatrixXd checked_skew(const std::string&, const Eigen::MatrixXd&, double); \
  }

#ifdef SYMPOW_COMPILED_FORMS
SYMPOW_CHECKED_SKEW(extern)
#endif
