// Weights beyond the range of the scalar type: 2^exponent · fraction, with a whole exponent in double.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numbers>

#include <sympow/core/concepts.hpp>
#include <sympow/simd/exponential.hpp>
#include <sympow/simd/power_of_two.hpp>
#include <sympow/simd/scaled.hpp>

namespace SYMPOW_NAMESPACE::detail {

/// A sum of log gates to twice the digits of a double.
struct LogGate {
  double high = 0, low = 0;

  void add(double log) {
    const double sum = high + log, part = sum - high;
    low += (high - (sum - part)) + (log - part);
    high = sum;
  }
  void add(const LogGate& other) {
    add(other.high);
    low += other.low;
  }
  [[nodiscard]] double log2() const { return high * std::numbers::log2e; }
  /// Takes the whole powers of two out of a decay e^this, which is more than 1/2 then; returns the exponent.
  double take_power_of_two() {
    if (high > -std::numbers::ln2) return 0;
    ReducedExponent reduced = reduced_exponent(high);
    if (reduced.rest > 0) reduced.rest -= std::numbers::ln2, reduced.whole += 1;
    high = reduced.rest;
    return reduced.whole;
  }
};

/// e^log = 2^exponent · fraction, the fraction in [0.7, 1.42].
struct Weight {
  double exponent, fraction;

  explicit Weight(const LogGate& log) {
    const ReducedExponent reduced = reduced_exponent(log.high);
    exponent = reduced.whole;
    fraction = std::exp(reduced.rest + log.low);
  }
  /// 2^shift · e^log as a number; 0 below the normal numbers.
  [[nodiscard]] double number(double shift) const { return fraction * nearest_power_of_two<double>(exponent + shift); }
};

/// Log of a decay over which numbers lose nothing to the ends of the type.
inline constexpr double least_log_decay = -27;

/// Some log gates by channel: the largest, and whether all are the same.
inline double largest_gate(const Eigen::VectorXd& log_a) {
  double largest = log_a.size() > 0 ? log2_zero : 0;
  for (Index c = 0; c < log_a.size(); ++c) largest = std::max(largest, log_a[c]);
  return largest;
}
inline bool gates_agree(const Eigen::VectorXd& log_a) {
  return std::all_of(log_a.data(), log_a.data() + log_a.size(), [&](double x) { return x == log_a[0]; });
}

/// weights_j ← factor · fractions_j · 2^{exponents_j + shift}: 0 below 2^least and below the normal numbers of the
/// type, and no power of two above the largest of the type.
template <class Scalar>
void set_weights_at(Scalar* __restrict weights, const double* __restrict exponents, const Scalar* __restrict fractions,
                    Index n, double shift, Scalar factor, double least) {
  constexpr double bias = std::numeric_limits<Scalar>::max_exponent - 1,
                   ulp_is_1 = 0x1p52;  // a conversion may be made before the comparisons, and trap
  for (Index j = 0; j < n; ++j) {
    const double exponent = exponents[j] + shift;
    const double whole =
        exponent < least ? -bias : std::min(std::max(exponent, -bias), bias - 1);  // a key that no row sees
    const auto word = static_cast<Bits<Scalar>>(std::bit_cast<std::uint64_t>(whole + bias + ulp_is_1));
    weights[j] = fractions[j] * factor * std::bit_cast<Scalar>(word << bits_of_fraction<Scalar>);
  }
}

/// Powers of two by which weights stay below 1, or above it if negative, so that weighted values and their sums do not
/// leave the type: half its range where the largest value is farther from 1 than that.
template <class Scalar>
double headroom_for(Scalar largest_value) {
  constexpr int half = std::numeric_limits<Scalar>::max_exponent / 2;
  if (largest_value > normal_power_of_two<Scalar>(half)) return half;
  return largest_value > Scalar(0) && largest_value < normal_power_of_two<Scalar>(-half) ? -half : 0;
}

}  // namespace SYMPOW_NAMESPACE::detail
