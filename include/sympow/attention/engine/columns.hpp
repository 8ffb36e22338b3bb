// Columns as a power of two times a vector of moderate length.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>

#include <sympow/attention/engine/scaled.hpp>
#include <sympow/core/blocks.hpp>

namespace sympow::detail {

/// x ← x / 2^n, exactly, with 2^n the power of two above ‖x‖, for any x; returns n, or log2 of 0 for x = 0.
template <class Scalar>
double take_far_exponent(Eigen::Ref<Vector<Scalar>> x) {
  const Scalar norm = x.stableNorm();
  if (norm == Scalar(0)) return no_weight;
  if (norm > std::numeric_limits<Scalar>::max()) {  // the length overflows where the entries do not
    constexpr int room = 32;
    x *= std::ldexp(Scalar(1), -room);
    return std::isfinite(x.stableNorm()) ? room + take_far_exponent<Scalar>(x) : 0;
  }
  if (std::isnan(norm)) return 0;  // it shows in the rows that see it
  int exponent = 0;
  std::frexp(norm, &exponent);
  const int half = exponent / 2;  // in two steps: 2^-exponent alone can overflow
  x = (x * std::ldexp(Scalar(1), -half)) * std::ldexp(Scalar(1), half - exponent);
  return exponent;
}

/// y ← factor x / 2^n and its length, with 2^n the power of two above ‖x‖; returns n, or log2 of 0 for x = 0. y may be x.
template <class X, class Y>
double take_exponent(const X& x, Y&& y, typename X::Scalar factor, typename X::Scalar& norm) {
  using Scalar = typename X::Scalar;
  constexpr int moderate = std::numeric_limits<Scalar>::max_exponent / 2 - 4;
  const Scalar square = squared_norm(x);
  if (normal_power_of_two<Scalar>(-moderate) <= square && square <= normal_power_of_two<Scalar>(moderate)) {
    const int exponent = (exponent_above(square) + 1) >> 1;
    const Scalar by = factor * normal_power_of_two<Scalar>(-exponent);
    y = x * by;
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
template <class Column>
double take_exponent(Column&& x) {
  typename std::remove_cvref_t<Column>::Scalar norm;
  return take_exponent(x, x, 1, norm);
}

/// φ of the columns of x for an embedded score, φ(x_t) = 2^exponents[t] features.col(t) with lengths below 1.
template <FiniteFeatureMap F, class X, class Features, class Exponents>
void embed_scaled(const F& feature, const X& x, Features&& features, Exponents&& exponents) {
  if constexpr (ScaledFeatureMap<F>) {
    feature.embed(x, features, exponents);
  } else {
    feature.embed(x, features);
    exponents.setZero();
  }
  for (Index t = 0; t < x.cols(); ++t) exponents[t] += take_exponent(features.col(t));
}

/// The same, and the lengths for diagnostics.
template <FiniteFeatureMap F, class X, class Features, class Exponents, class Norms>
void embed_scaled(const F& feature, const X& x, Features&& features, Exponents&& exponents, Norms&& norms,
                  bool diagnose) {
  embed_scaled(feature, x, features, exponents);
  if (diagnose) norms = features.colwise().norm();
}

/// y ← keys x with their exponents taken out, as far as the score allows it: of every column for a power; an exponential score has them put
/// back but for that of the longest key, which is returned and belongs into the queries; an embedded score has them taken from φ(k)
/// instead. exponents(t) + log2 of the new length, norms(t), is log2 of the old one. y may be x.
template <FeatureMap F, class X, class Y, class Exponents, class Norms>
double load_keys(const X& x, Y&& y, Exponents&& exponents, Norms&& norms) {
  if constexpr (F::score == Score::embedded) {
    y = x;
    exponents.setZero();
    norms = y.colwise().norm();
  } else {
    for (Index t = 0; t < x.cols(); ++t) exponents[t] = take_exponent(x.col(t), y.col(t), 1, norms[t]);
  }
  if constexpr (F::score == Score::exponential) {
    const double longest = std::max(exponents.maxCoeff(), static_cast<double>(std::numeric_limits<int>::min()));
    for (Index t = 0; t < x.cols(); ++t) y.col(t) = times_power_of_two(y.col(t), exponents[t] - longest);
    exponents.setZero();
    norms = y.colwise().norm();
    return longest;
  }
  return 0;
}

/// y ← queries x of a call: the scale is multiplied in, and the exponents of columns are taken out as those of the keys are. Lengths that
/// an exponential score would multiply by 2^of_keys beyond the type are cut: a logit of such a length leaves no digits to its row.
template <FeatureMap F, class X, class Y, class Exponents, class Norms>
void load_queries(const X& x, Y&& y, Exponents&& exponents, Norms&& norms, double scale, double of_keys = 0) {
  using Scalar = typename X::Scalar;
  int of_scale = 0;
  const auto mantissa = static_cast<Scalar>(std::frexp(scale, &of_scale));
  exponents.setZero();
  if constexpr (F::score == Score::embedded) y = x * static_cast<Scalar>(scale);
  for (Index t = 0; t < x.cols(); ++t) {
    if constexpr (F::score == Score::power) {
      exponents[t] = take_exponent(x.col(t), y.col(t), mantissa, norms[t]) + of_scale;
    } else if constexpr (F::score == Score::exponential) {
      constexpr double limit = std::numeric_limits<Scalar>::max_exponent - 4;
      const double exponent = take_exponent(x.col(t), y.col(t), mantissa, norms[t]) + of_scale + of_keys;
      y.col(t) = times_power_of_two(y.col(t), std::min(exponent, limit));
    }
  }
  if constexpr (F::score != Score::power) norms = y.colwise().norm();
}

/// y_j ← w_j x_j.
template <class X, class Weights, class Y>
void scale_columns(const X& x, const Weights& weights, Y&& y) {
  for (Index j = 0; j < x.cols(); ++j)
    for_blocks(x.rows(), [&](Index first, auto count) {
      y.col(j).segment(first, count) = x.col(j).segment(first, count) * weights[j];
    });
}

}  // namespace sympow::detail
