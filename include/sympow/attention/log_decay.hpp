// Sums of log gates, and what they are as weights.
#pragma once

#include <algorithm>
#include <cmath>

#include <sympow/core/exponential.hpp>

namespace SYMPOW_NAMESPACE::detail {

/// e^log 2^whole, the difference of the exponents first: neither factor need be a number of the type.
inline double weight_of(double log, double whole) {
  const ReducedExponent reduced = reduced_exponent(log);
  const double exponent = reduced.whole + whole;
  return exponent > -2000 ? std::ldexp(std::exp(reduced.rest), static_cast<int>(std::min(exponent, 4096.0))) : 0;
}

/// e^log 2^whole of any size, as a factor: 2^exponent mantissa.
struct FarWeight {
  double mantissa = 0, exponent = 0;

  FarWeight() = default;
  FarWeight(double log, double whole) {
    const ReducedExponent reduced = reduced_exponent(log);
    if (reduced.whole + whole > -16384) mantissa = std::exp(reduced.rest), exponent = reduced.whole + whole;
  }
  /// Rounded to a number once.
  [[nodiscard]] double times(double x) const {
    return std::ldexp(mantissa * x, static_cast<int>(std::min(exponent, 16384.0)));
  }
};

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
