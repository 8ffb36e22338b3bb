// Columns as a power of two times a vector of moderate length.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>

#include <sympow/attention/scaled.hpp>
#include <sympow/core/blocks.hpp>

namespace SYMPOW_NAMESPACE::detail {

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

/// norms_t ← ‖x_t‖.
template <class Scalar>
void set_norms(MatrixView<const Scalar> x, ColumnView<Scalar> norms) {
  for (Index t = 0; t < x.cols(); ++t) norms[t] = std::sqrt(squared_norm(x.col(t).data(), x.rows()));
}

/// φ of the columns of x for an embedded score, φ(x_t) = 2^exponents[t] features.col(t) with lengths below 1, which are given.
template <FiniteFeatureMap F, class Scalar>
void embed_scaled(const F& feature, MatrixView<Scalar> x, MatrixView<Scalar> features, ColumnView<double> exponents,
                  ColumnView<Scalar> norms) {
  if (x.cols() == 0) return;  // what is empty has no memory
  if constexpr (ScaledFeatureMap<F>) {
    feature.embed(x, features, exponents);
  } else {
    feature.embed(x, features);
    exponents.setZero();
  }
  for (Index t = 0; t < x.cols(); ++t)
    exponents[t] += take_exponent<Scalar>(features.col(t), features.col(t), 1, norms[t]);
}

/// y ← factor x with its length in the exponents, as far as the score allows it: of every column for a power; of an exponential score only
/// where the length is near the ends of the type; of an embedded one from φ(x), later. norms(t) is the length of y.
template <FeatureMap F, class Scalar>
void load_columns(MatrixView<const Scalar> x, MatrixView<Scalar> y, ColumnView<double> exponents,
                  ColumnView<Scalar> norms, double factor = 1) {
  int of_factor = 0;
  const auto mantissa = static_cast<Scalar>(factor == 1 ? 1 : std::frexp(factor, &of_factor));
  for (Index t = 0; t < x.cols(); ++t) {
    if constexpr (F::score == Score::embedded) {
      set_scaled(y.col(t).data(), x.col(t).data(), static_cast<Scalar>(factor), x.rows());
      exponents[t] = 0;
      continue;
    }
    exponents[t] = take_exponent<Scalar>(x.col(t), y.col(t), mantissa, norms[t]) + of_factor;
    if constexpr (F::score == Score::exponential) {
      constexpr double moderate = std::numeric_limits<Scalar>::max_exponent / 2 - 4;
      if (exponents[t] > moderate || (exponents[t] < -moderate && exponents[t] != no_weight)) continue;
      if (exponents[t] != no_weight) {
        const auto back = normal_power_of_two<Scalar>(static_cast<int>(exponents[t]));
        set_scaled(y.col(t).data(), y.col(t).data(), back, x.rows());
        norms[t] *= back;
      }
      exponents[t] = 0;
    }
  }
}

/// y_j ← w_j x_j.
template <class Scalar>
void scale_columns(MatrixView<const Scalar> x, ColumnView<const Scalar> weights, MatrixView<Scalar> y) {
  for (Index j = 0; j < x.cols(); ++j) set_scaled(y.col(j).data(), x.col(j).data(), weights[j], x.rows());
}

}  // namespace SYMPOW_NAMESPACE::detail
