// Numbers and columns with a separate power-of-two exponent, beyond the range of the scalar type.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>

#include <sympow/core/view.hpp>
#include <sympow/simd/blocks.hpp>
#include <sympow/simd/power_of_two.hpp>

namespace SYMPOW_NAMESPACE::detail {

inline constexpr double log2_zero = -std::numeric_limits<double>::infinity();  // log2 of 0

/// Magnitude of the entries of a matrix.
template <class Scalar>
struct Extent {
  Scalar largest = 0;      ///< max |x| of the finite entries, 0 if there are none
  bool all_finite = true;  ///< no entry is infinite or NaN
};
template <class Scalar>
Extent<Scalar> measure_extent(MatrixView<const Scalar> x) {
  auto some = Lanes<Scalar>::all(0), zeros = some;
  Scalar largest(0), zero(0);
  for (Index t = 0; t < x.cols(); ++t) {
    const Scalar* const column = x.col(t).data();
    Index i = 0;
    for (; i + 16 <= x.rows(); i += 16) {
      const auto entries = Lanes<Scalar>::load(column + i), product = entries * Scalar(0);
      some = larger(some, larger(entries, product - entries));
      zeros = zeros + product;
    }
    for (; i < x.rows(); ++i) {
      largest = std::max(largest, std::abs(column[i]));
      zero += column[i] * Scalar(0);
    }
  }
  Extent<Scalar> extent{std::max(largest, some.largest()), zeros.sum() + zero == Scalar(0)};
  if (extent.all_finite) return extent;
  extent.largest = 0;
  for (Index t = 0; t < x.cols(); ++t)
    for (Index i = 0; i < x.rows(); ++i)
      if (std::isfinite(x(i, t))) extent.largest = std::max(extent.largest, std::abs(x(i, t)));
  return extent;
}

/// 2^exponent; 0 or infinity outside the range of the type.
template <class Scalar>
Scalar power_of_two(double exponent) {
  return static_cast<Scalar>(std::exp2(std::clamp(exponent, -4096.0, 4096.0)));
}

/// 2^exponent x for an integer exponent, rounded once; infinite only if the product overflows. NaN for a NaN exponent.
template <class Scalar>
Scalar times_power_of_two(Scalar x, double exponent) {
  using Limits = std::numeric_limits<Scalar>;
  const double n = std::clamp(exponent, -8192.0, 8192.0);  // first: compilers convert before they ask, and may trap
  if (Limits::min_exponent < n && n < Limits::max_exponent) return x * normal_power_of_two<Scalar>(static_cast<int>(n));
  if (std::isnan(n)) return static_cast<Scalar>(n);
  return std::ldexp(x, static_cast<int>(n));
}

/// y ← 2^exponent x, rounded as above, by packets if the power is a normal number. y may be x.
template <class Scalar>
void set_times_power_of_two(ColumnView<Scalar> y, ColumnView<const Scalar> x, double exponent) {
  using Limits = std::numeric_limits<Scalar>;
  if (Limits::min_exponent < exponent && exponent < Limits::max_exponent)
    set_scaled(y.data(), x.data(), normal_power_of_two<Scalar>(static_cast<int>(exponent)), x.size());
  else
    for (Index i = 0; i < x.size(); ++i) y[i] = times_power_of_two(x[i], exponent);
}

/// y ← y + 2^exponent x.
template <class Scalar>
void add_times_power_of_two(ColumnView<Scalar> y, ColumnView<const Scalar> x, double exponent) {
  using Limits = std::numeric_limits<Scalar>;
  if (Limits::min_exponent < exponent && exponent < Limits::max_exponent)
    return add_scaled(y.data(), x.data(), normal_power_of_two<Scalar>(static_cast<int>(exponent)), x.size());
  for (Index i = 0; i < x.size(); ++i) y[i] += times_power_of_two(x[i], exponent);
}

/// ‖x‖ without intermediate overflow.
template <class Scalar>
Scalar stable_norm(ColumnView<const Scalar> x) {
  Scalar largest(0), sum(0);
  for (Index i = 0; i < x.size(); ++i) {
    if (std::isnan(x[i])) return x[i];
    largest = std::max(largest, std::abs(x[i]));
  }
  if (largest == Scalar(0) || std::isinf(largest)) return largest;
  for (Index i = 0; i < x.size(); ++i) sum += (x[i] / largest) * (x[i] / largest);
  return largest * std::sqrt(sum);
}

/// x ← x / 2^n exactly, with 2^n the power of two above ‖x‖, for any x. Returns n, or -∞ for x = 0.
template <class Scalar>
double normalize_extreme_column(ColumnView<Scalar> x) {
  const Scalar norm = stable_norm<Scalar>(x);
  if (norm == Scalar(0)) return log2_zero;
  if (norm > std::numeric_limits<Scalar>::max()) {  // ‖x‖ overflows although the entries are finite
    constexpr int headroom = 32;
    set_scaled(x.data(), x.data(), std::ldexp(Scalar(1), -headroom), x.size());
    return std::isfinite(stable_norm<Scalar>(x)) ? headroom + normalize_extreme_column<Scalar>(x) : 0;
  }
  if (std::isnan(norm)) return 0;  // NaN propagates to the rows that see x
  int exponent = 0;
  std::frexp(norm, &exponent);
  const int half = exponent / 2;  // in two steps, because 2^-exponent alone can overflow
  for (const int part : {-half, half - exponent}) set_scaled(x.data(), x.data(), std::ldexp(Scalar(1), part), x.size());
  return exponent;
}

/// y ← factor x / 2^n and norm ← ‖y‖, with 2^n the power of two above ‖x‖. Returns n, or -∞ for x = 0. y may be x.
template <class Scalar>
double normalize_column(ColumnView<const Scalar> x, ColumnView<Scalar> y, Scalar factor, Scalar& norm) {
  constexpr int moderate = std::numeric_limits<Scalar>::max_exponent / 2 - 4;
  const Scalar square = squared_norm(x.data(), x.size());
  if (normal_power_of_two<Scalar>(-moderate) <= square && square <= normal_power_of_two<Scalar>(moderate)) {
    const int exponent = (exponent_above(square) + 1) >> 1;
    const Scalar by = factor * normal_power_of_two<Scalar>(-exponent);
    set_scaled(y.data(), x.data(), by, x.size());
    norm = std::sqrt(square) * std::abs(by);
    return exponent;
  }
  std::copy_n(x.data(), x.size(), y.data());
  const double exponent = normalize_extreme_column<Scalar>(y);
  set_scaled(y.data(), y.data(), factor, y.size());
  norm = std::sqrt(squared_norm(y.data(), y.size()));
  return exponent;
}

/// norms_t ← ‖x_t‖.
template <class Scalar>
void set_norms(MatrixView<const Scalar> x, ColumnView<Scalar> norms) {
  for (Index t = 0; t < x.cols(); ++t) norms[t] = std::sqrt(squared_norm(x.col(t).data(), x.rows()));
}

/// y_j ← w_j x_j.
template <class Scalar>
void scale_columns(MatrixView<const Scalar> x, ColumnView<const Scalar> weights, MatrixView<Scalar> y) {
  for (Index j = 0; j < x.cols(); ++j) set_scaled(y.col(j).data(), x.col(j).data(), weights[j], x.rows());
}

}  // namespace SYMPOW_NAMESPACE::detail
