// What counts as a skew matrix.
#pragma once

#include <limits>
#include <string>

#include <sympow/core/checks.hpp>
#include <sympow/core/concepts.hpp>

namespace sympow::detail {

/// (S - Sᵀ)/2 in double. Throws `ShapeMismatch` unless S is square, `NotFinite`, and `NotSkew` unless ‖S + Sᵀ‖ is rounding, 8 d u ‖S‖.
template <MatrixExpression X>
[[nodiscard]] Eigen::MatrixXd checked_skew(const std::string& name, const X& given) {
  using Scalar = scalar_t<X>;
  check_size("columns of " + name, given.cols(), given.rows(), "its rows");
  const Eigen::MatrixXd S = given.template cast<double>();
  if (!S.allFinite()) raise<NotFinite>(name, " has an entry that is not finite");
  const double unit = static_cast<double>(std::numeric_limits<Scalar>::epsilon()) / 2;
  const double off = (S + S.transpose()).stableNorm(),
               allowed = 8 * static_cast<double>(S.rows()) * unit * S.stableNorm();
  if (off > allowed) raise<NotSkew>(name, ": |S + S^T| is ", off, ", must be at most ", allowed);
  return (S - S.transpose()) / 2;
}

}  // namespace sympow::detail
