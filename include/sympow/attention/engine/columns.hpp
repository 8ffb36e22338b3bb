// Columns as a power of two times a vector of moderate length.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>

#include <sympow/attention/engine/scaled.hpp>
#include <sympow/core/blocks.hpp>

namespace sympow::detail {

/// ‖x‖ without overflow on the way to it.
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

/// x ← x / 2^n, exactly, with 2^n the power of two above ‖x‖, for any x; returns n, or log2 of 0 for x = 0.
template <class Scalar>
double take_far_exponent(ColumnView<Scalar> x) {
  const Scalar norm = stable_norm<Scalar>(x);
  if (norm == Scalar(0)) return no_weight;
  if (norm > std::numeric_limits<Scalar>::max()) {  // the length overflows where the entries do not
    constexpr int room = 32;
    x *= std::ldexp(Scalar(1), -room);
    return std::isfinite(stable_norm<Scalar>(x)) ? room + take_far_exponent<Scalar>(x) : 0;
  }
  if (std::isnan(norm)) return 0;  // it shows in the rows that see it
  int exponent = 0;
  std::frexp(norm, &exponent);
  const int half = exponent / 2;  // in two steps: 2^-exponent alone can overflow
  x = (x * std::ldexp(Scalar(1), -half)) * std::ldexp(Scalar(1), half - exponent);
  return exponent;
}

/// y ← factor x / 2^n and its length, with 2^n the power of two above ‖x‖; returns n, or log2 of 0 for x = 0. y may be x.
template <class Scalar>
double take_exponent(ColumnView<const Scalar> x, ColumnView<Scalar> y, Scalar factor, Scalar& norm) {
  constexpr int moderate = std::numeric_limits<Scalar>::max_exponent / 2 - 4;
  const Scalar square = squared_norm(x.data(), x.size());
  if (normal_power_of_two<Scalar>(-moderate) <= square && square <= normal_power_of_two<Scalar>(moderate)) {
    const int exponent = (exponent_above(square) + 1) >> 1;
    const Scalar by = factor * normal_power_of_two<Scalar>(-exponent);
    set_scaled(y.data(), x.data(), by, x.size());
    norm = std::sqrt(square) * std::abs(by);
    return exponent;
  }
  y = x;
  const double exponent = take_far_exponent<Scalar>(y);
  y *= factor;
  norm = y.norm();
  return exponent;
}

/// The same in place, exactly.
template <class Scalar>
double take_exponent(ColumnView<Scalar> x) {
  Scalar norm;
  return take_exponent<Scalar>(x, x, 1, norm);
}

/// norms_t ← ‖x_t‖.
template <class Scalar>
void set_norms(MatrixView<Scalar> x, ColumnView<Scalar> norms) {
  for (Index t = 0; t < x.cols(); ++t) norms[t] = x.col(t).norm();
}

/// φ of the columns of x for an embedded score, φ(x_t) = 2^exponents[t] features.col(t) with lengths below 1.
template <FiniteFeatureMap F, class Scalar>
void embed_scaled(const F& feature, MatrixView<Scalar> x, MatrixView<Scalar> features, ColumnView<double> exponents) {
  if constexpr (ScaledFeatureMap<F>) {
    feature.embed(x, features, exponents);
  } else {
    feature.embed(x, features);
    exponents.setZero();
  }
  for (Index t = 0; t < x.cols(); ++t) exponents[t] += take_exponent(features.col(t));
}

/// The same, and the lengths for diagnostics.
template <FiniteFeatureMap F, class Scalar>
void embed_scaled(const F& feature, MatrixView<Scalar> x, MatrixView<Scalar> features, ColumnView<double> exponents,
                  ColumnView<Scalar> norms, bool diagnose) {
  embed_scaled(feature, x, features, exponents);
  if (diagnose) set_norms(features, norms);
}

/// y ← keys x with their exponents taken out, as far as the score allows it: of every column for a power; an exponential score has them put
/// back but for that of the longest key, which is returned and belongs into the queries; an embedded score has them taken from φ(k)
/// instead. exponents(t) + log2 of the new length, norms(t), is log2 of the old one. y may be x.
template <FeatureMap F, class Scalar>
double load_keys(MatrixView<const Scalar> x, MatrixView<Scalar> y, ColumnView<double> exponents,
                 ColumnView<Scalar> norms) {
  double longest = 0;
  if constexpr (F::score == Score::embedded) {
    y = x;
  } else {
    for (Index t = 0; t < x.cols(); ++t) exponents[t] = take_exponent<Scalar>(x.col(t), y.col(t), 1, norms[t]);
    if constexpr (F::score == Score::power) return 0;
    longest = std::numeric_limits<int>::min();
    for (Index t = 0; t < x.cols(); ++t) longest = std::max(longest, exponents[t]);
    for (Index t = 0; t < x.cols(); ++t) set_times_power_of_two<Scalar>(y.col(t), y.col(t), exponents[t] - longest);
  }
  exponents.setZero();
  set_norms(y, norms);
  return longest;
}

/// y ← queries x of a call: the scale is multiplied in, and the exponents of columns are taken out as those of the keys are. Lengths that
/// an exponential score would multiply by 2^of_keys beyond the type are cut: a logit of such a length leaves no digits to its row.
template <FeatureMap F, class Scalar>
void load_queries(MatrixView<const Scalar> x, MatrixView<Scalar> y, ColumnView<double> exponents,
                  ColumnView<Scalar> norms, double scale, double of_keys = 0) {
  int of_scale = 0;
  const auto mantissa = static_cast<Scalar>(std::frexp(scale, &of_scale));
  exponents.setZero();
  for (Index t = 0; t < x.cols(); ++t) {
    if constexpr (F::score == Score::embedded) {
      y.col(t) = x.col(t) * static_cast<Scalar>(scale);
      continue;
    }
    const double exponent = take_exponent<Scalar>(x.col(t), y.col(t), mantissa, norms[t]) + of_scale;
    if constexpr (F::score == Score::power) {
      exponents[t] = exponent;
    } else if constexpr (F::score == Score::exponential) {
      constexpr double limit = std::numeric_limits<Scalar>::max_exponent - 4;
      set_times_power_of_two<Scalar>(y.col(t), y.col(t), std::min(exponent + of_keys, limit));
    }
  }
  if constexpr (F::score != Score::power) set_norms(y, norms);
}

/// y_j ← w_j x_j.
template <class Scalar>
void scale_columns(MatrixView<const Scalar> x, ColumnView<const Scalar> weights, MatrixView<Scalar> y) {
  for (Index j = 0; j < x.cols(); ++j) set_scaled(y.col(j).data(), x.col(j).data(), weights[j], x.rows());
}

}  // namespace sympow::detail
