// The largest of several residuals.
#pragma once

#include <cmath>
#include <limits>

#include <sympow/core/concepts.hpp>

namespace sympow::verify::detail {

/// Collects residuals and keeps the largest; one that is not a number stays, so that nothing is decided by its absence.
class Largest {
 public:
  void add(double residual) {
    if (!(residual <= value_) && !std::isnan(value_)) value_ = residual;
  }

  /// max |a - b| / scale over the entries, taken in double; infinity for different shapes.
  template <MatrixExpression A, MatrixExpression B>
  void add(const A& a, const B& b, double scale = 1) {
    over_entries(a, b, [scale](double x, double y) { return std::abs(x - y) / scale; });
  }

  /// max |a - b| / |b| over the entries; 0 where both are the same number.
  template <MatrixExpression A, MatrixExpression B>
  void add_relative(const A& a, const B& b) {
    over_entries(a, b, [](double x, double y) { return x == y ? 0 : std::abs(x - y) / std::abs(y); });
  }

  [[nodiscard]] double value() const { return value_; }

 private:
  template <class A, class B, class Residual>
  void over_entries(const A& a, const B& b, Residual residual) {
    if (a.rows() != b.rows() || a.cols() != b.cols()) return add(std::numeric_limits<double>::infinity());
    const Matrix<double> x = a.template cast<double>(), y = b.template cast<double>();
    for (Index n = 0; n < x.size(); ++n) add(residual(x.data()[n], y.data()[n]));
  }

  double value_ = 0;
};

}  // namespace sympow::verify::detail
