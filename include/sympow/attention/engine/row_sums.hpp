// Sums over keys for a block of rows, each with its own scale: what every form adds its contributions to.
#pragma once

#include <cmath>
#include <limits>

#include <sympow/attention/engine/scaled.hpp>
#include <sympow/attention/options.hpp>
#include <sympow/core/product.hpp>

namespace sympow::detail {

/// For rows i = 0 … n - 1
///
///     Σ_j s_ij v_j = 2^scale_i values_i,   Σ_j s_ij = 2^scale_i denominator_i
///
/// with whole scale_i that follow the largest contribution, `room` above it. `noise` is the absolute weight relative to which a denominator can be rounding:
/// that which was read through φ, and for signed means all of it.
template <class Scalar>
class RowSums {
 public:
  /// Memory for so many rows.
  void reserve(Index value_rows, Index rows) {
    values_(value_rows, rows);
    for (auto* numbers : {&denominators_, &noises_, &new_factors_}) (*numbers)(rows);
    scales_(rows);
  }

  void reset(Index value_rows, Index rows, double room) {
    reserve(value_rows, rows);
    value_rows_ = value_rows;
    rows_ = rows;
    room_ = room;
    values_(value_rows, rows).setZero();
    denominators_(rows).setZero();
    noises_(rows).setZero();
    scales_(rows).setConstant(no_weight);
  }

  /// Adds 2^{shift_i + gate_i} V w_i for the columns w_i of `weights`, which are scaled in place. Shifts may be large and are whole
  /// but for exponential scores; gates are log2 of a decay, and keep their fractions however large the shift.
  void add(MatrixView<const Scalar> V, MatrixView<Scalar> weights, ColumnView<const double> shift,
           ColumnView<const double> gate, bool is_signed) {
    rescale(shift, gate, room_);
    auto denominators = denominators_(rows_), noises = noises_(rows_), factors = new_factors_(rows_);
    for (Index i = 0; i < rows_; ++i) {
      ColumnView<Scalar> own = weights.col(i);
      own *= factors[i];
      denominators[i] += own.sum();
      if (is_signed) noises[i] += own.cwiseAbs().sum();
    }
    add_product(values_(value_rows_, rows_), V, weights);
  }

  /// Adds 2^{shift_i + gate_i} times numerators and denominators that were read from a state; `absolute` is their absolute weight.
  void add_read(MatrixView<const Scalar> numerators, ColumnView<const Scalar> denominators,
                ColumnView<const Scalar> absolute, ColumnView<const double> shift, ColumnView<const double> gate) {
    rescale(shift, gate, 0);  // a state has taken its room itself
    auto values = values_(value_rows_, rows_);
    auto sums = denominators_(rows_), noises = noises_(rows_), factors = new_factors_(rows_);
    for (Index i = 0; i < rows_; ++i) {
      values.col(i) += numerators.col(i) * factors[i];
      sums[i] += denominators[i] * factors[i];
      noises[i] += absolute[i] * factors[i];
    }
  }

  /// Whether row i has nothing to divide by: its denominator is not above 16 u of the noise.
  [[nodiscard]] bool degenerate(Index i, Rows rows) {
    constexpr Scalar tolerance = 16 * std::numeric_limits<Scalar>::epsilon() / 2;
    const Scalar sum = rows == Rows::signed_means ? std::abs(denominator(i)) : denominator(i);
    return rows != Rows::sums && sum <= tolerance * noises_(rows_)[i];  // one that is not a number stays one
  }

  /// log2 |Σ_j s_ij|.
  [[nodiscard]] double log2_denominator(Index i) {
    return denominator(i) == Scalar(0) ? no_weight
                                       : scales_(rows_)[i] + std::log2(std::abs(static_cast<double>(denominator(i))));
  }

  /// Y ← the rows from `first` on.
  void write(Rows rows, Index first, MatrixView<Scalar> Y) {
    constexpr Scalar largest = std::numeric_limits<Scalar>::max();
    for (Index t = 0; t < Y.cols(); ++t) {
      const Index i = first + t;
      ColumnView<Scalar> y = Y.col(t), values = values_(value_rows_, rows_).col(i);
      const double scale = scales_(rows_)[i];
      if (degenerate(i, rows) || scale == no_weight)
        y.setZero();
      else if (rows == Rows::sums)
        set_times_power_of_two<Scalar>(y, values, scale);
      else
        y = values / denominator(i);
      if (rows != Rows::sums && room_ > 0)  // a mean of values near the largest number can be rounded beyond it
        for (Index r = 0; r < y.size(); ++r)
          if (std::isinf(y[r])) y[r] = std::copysign(largest, y[r]);
    }
  }

 private:
  // Raises the scales to those of a contribution and `room` above; old factors are at most 1, new ones 2^-room.
  void rescale(ColumnView<const double> shift, ColumnView<const double> gate, double room) {
    auto values = values_(value_rows_, rows_);
    auto denominators = denominators_(rows_), noises = noises_(rows_), factors = new_factors_(rows_);
    auto scales = scales_(rows_);
    for (Index i = 0; i < rows_; ++i) {
      const double whole = std::ceil(shift[i] + gate[i]), raised = std::max(scales[i], whole + room);
      const Scalar old = raised == no_weight ? Scalar(0) : power_of_two<Scalar>(scales[i] - raised);
      factors[i] =
          whole == no_weight
              ? Scalar(0)
              : static_cast<Scalar>(times_power_of_two(std::exp2((shift[i] - whole) + gate[i]), whole - raised));
      scales[i] = raised;
      if (old == Scalar(1)) continue;
      values.col(i) *= old;
      denominators[i] *= old;
      noises[i] *= old;
    }
  }

  [[nodiscard]] Scalar denominator(Index i) { return denominators_(rows_)[i]; }

  Index value_rows_ = 0, rows_ = 0;
  double room_ = 0;
  Panel<Scalar> values_, denominators_, noises_, new_factors_;
  Panel<double> scales_;
};

}  // namespace sympow::detail
