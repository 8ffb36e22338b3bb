// Columns as a power of two times a vector of moderate length.
#pragma once

#include <cmath>
#include <limits>

#include <sympow/core/scaled.hpp>
#include <sympow/feature/feature_map.hpp>

namespace SYMPOW_NAMESPACE::detail {

/// y ← factor x with its length in the exponents, as far as the score allows it: of every column for a power; of an
/// exponential score only where the length is near the ends of the type; of an embedded one from φ(x), later. norms(t)
/// is the length of y.
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

}  // namespace SYMPOW_NAMESPACE::detail
