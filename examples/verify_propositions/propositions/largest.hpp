// The largest of several residuals.
#pragma once

#include <cmath>
#include <limits>

#include <sympow/core/concepts.hpp>

namespace SYMPOW_NAMESPACE::verify::detail {

/// Collects residuals and keeps the largest; one that is not a number stays, so that nothing is decided by its absence.
class Largest {
 public:
  void add(double residual) {
    if (!(residual <= value_) && !std::isnan(value_)) value_ = residual;
  }

  /// max |a - b| / scale over the entries, taken in double; infinity for different shapes.
  template <class Scalar>
  void add(const Matrix<Scalar>& a, const Matrix<Scalar>& b, double scale = 1) {
    over_entries(a, b, [scale](double x, double y) { return std::abs(x - y) / scale; });
  }

  /// max |a - b| / |b| over the entries; 0 where both are the same number.
  template <class Scalar>
  void add_relative(const Matrix<Scalar>& a, const Matrix<Scalar>& b) {
    over_entries(a, b, [](double x, double y) { return x == y ? 0 : std::abs(x - y) / std::abs(y); });
  }

  [[nodiscard]] double value() const { return value_; }

 private:
  template <class Scalar, class Residual>
  void over_entries(const Matrix<Scalar>& a, const Matrix<Scalar>& b, Residual residual) {
    if (a.rows() != b.rows() || a.cols() != b.cols()) return add(std::numeric_limits<double>::infinity());
    for (Index j = 0; j < a.cols(); ++j)
      for (Index i = 0; i < a.rows(); ++i) add(residual(static_cast<double>(a(i, j)), static_cast<double>(b(i, j))));
  }

  double value_ = 0;
};

}  // namespace SYMPOW_NAMESPACE::verify::detail
