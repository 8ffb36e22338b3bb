// Numbers as a power of two times what the scalar type can hold.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include <sympow/core/blocks.hpp>
#include <sympow/core/exponential.hpp>
#include <sympow/core/power_of_two.hpp>
#include <sympow/core/view.hpp>
#include <sympow/feature/feature_map.hpp>

namespace SYMPOW_NAMESPACE::detail {

inline constexpr double no_weight = -std::numeric_limits<double>::infinity();  // log2 of 0

/// How large the entries of a matrix are.
template <class Scalar>
struct Extent {
  Scalar largest = 0;      ///< max |x| of those that are finite, 0 without any
  bool all_finite = true;  ///< none is infinite or a NaN
};
template <class Scalar>
Extent<Scalar> extent_of(MatrixView<const Scalar> x) {
  using Block = Eigen::Array<Scalar, 16, 1>;
  Block largest = Block::Zero(), zeros = Block::Zero();
  for (Index t = 0; t < x.cols(); ++t) {
    const Scalar* const column = x.col(t).data();
    Index i = 0;
    for (; i + 16 <= x.rows(); i += 16) {
      const Block some = Block::Map(column + i);
      largest = largest.max(some.abs());
      zeros += some * Scalar(0);
    }
    for (; i < x.rows(); ++i) {
      largest[0] = std::max(largest[0], std::abs(column[i]));
      zeros[0] += column[i] * Scalar(0);
    }
  }
  Extent<Scalar> extent{largest.maxCoeff(), zeros.sum() == Scalar(0)};
  if (extent.all_finite) return extent;
  extent.largest = 0;
  for (Index t = 0; t < x.cols(); ++t)
    for (Index i = 0; i < x.rows(); ++i)
      if (std::isfinite(x(i, t))) extent.largest = std::max(extent.largest, std::abs(x(i, t)));
  return extent;
}

/// Powers of two by which weights stay below 1, or above it if negative, so that weighted values and their sums do not leave the type:
/// half its range where the largest value is farther from 1 than that.
template <class Scalar>
double room_for(Scalar largest) {
  using Limits = std::numeric_limits<Scalar>;
  constexpr int half = Limits::max_exponent / 2;
  if (largest > std::ldexp(Scalar(1), half)) return largest <= Limits::max() ? half : 0;
  return largest > Scalar(0) && largest < std::ldexp(Scalar(1), -half) ? -half : 0;
}

/// The degree in which a feature map is homogeneous: P for a power; an embedded score is bilinear in φ. Exponentials are not.
template <FeatureMap F>
inline constexpr int degree_of = [] {
  if constexpr (F::score == Score::power)
    return F::degree;
  else
    return 1;
}();

/// Whether φ(x) = x, so that what acts in key space acts on a state.
template <FeatureMap F>
inline constexpr bool keys_are_features = F::score == Score::power && degree_of<F> == 1;

/// 2^exponent, 0 and infinity where the type ends.
template <class Scalar>
Scalar power_of_two(double exponent) {
  return static_cast<Scalar>(std::exp2(std::clamp(exponent, -4096.0, 4096.0)));
}

/// 2^exponent x for a whole exponent, rounded once and infinite only where the product is.
template <class Scalar>
Scalar times_power_of_two(Scalar x, double exponent) {
  return std::ldexp(x, static_cast<int>(std::clamp(exponent, -8192.0, 8192.0)));
}

/// y ← 2^exponent x likewise, by packets where the power is a number of the type. y may be x.
template <class Scalar>
void set_times_power_of_two(ColumnView<Scalar> y, ColumnView<const Scalar> x, double exponent) {
  using Limits = std::numeric_limits<Scalar>;
  if (Limits::min_exponent < exponent && exponent < Limits::max_exponent)
    set_scaled(y.data(), x.data(), normal_power_of_two<Scalar>(static_cast<int>(exponent)), x.size());
  else
    for (Index i = 0; i < x.size(); ++i) y[i] = times_power_of_two(x[i], exponent);
}

/// e^log 2^whole, the difference of the exponents first: neither factor need be a number of the type.
inline double weight_of(double log, double whole) {
  const ReducedExponent reduced = reduced_exponent(log);
  const double exponent = reduced.whole + whole;
  return exponent > -2000 ? std::ldexp(std::exp(reduced.rest), static_cast<int>(std::min(exponent, 4096.0))) : 0;
}

/// A sum of log gates to twice the digits of a double: e^sum is as good as a double however many of them there are.
struct LogDecay {
  double high = 0, low = 0;

  void add(double log) {
    const double sum = high + log, part = sum - high;
    const double lost = (high - (sum - part)) + (log - part);
    low = std::isfinite(sum) ? low + lost : 0;
    high = sum;
  }
  void add(const LogDecay& other) {
    add(other.high);
    low += other.low;
  }
  /// e^sum 2^whole.
  [[nodiscard]] double weight(double whole = 0) const { return weight_of(high, whole) * (1 + low); }
};

}  // namespace SYMPOW_NAMESPACE::detail
