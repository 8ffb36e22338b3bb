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
    if (values_storage_.size() < value_rows * rows) values_storage_.resize(value_rows * rows);
    if (sums_.cols() < rows) sums_.resize(4, rows);
    if (scale_storage_.size() < rows) scale_storage_.resize(rows);
  }

  void reset(Index value_rows, Index rows, double room) {
    reserve(value_rows, rows);
    value_rows_ = value_rows;
    rows_ = rows;
    room_ = room;
    values().setZero();
    denominator().setZero();
    noise().setZero();
    scale().setConstant(no_weight);
  }

  /// Adds 2^{shift_i + gate_i} V w_i for the columns w_i of `weights`, which are scaled in place. Shifts may be large and are whole
  /// but for exponential scores; gates are log2 of a decay, and keep their fractions however large the shift.
  template <class Values, class Weights, class Logarithms>
  void add(const Values& V, Weights& weights, const Logarithms& shift, const Logarithms& gate, bool is_signed) {
    rescale(shift, gate, room_);
    weights.array().rowwise() *= new_factor().array();
    denominator() += weights.colwise().sum();
    if (is_signed) noise() += weights.cwiseAbs().colwise().sum();
    add_product(values(), V, weights);
  }

  /// Adds 2^{shift_i + gate_i} times numerators and denominators that were read from a state; `absolute` is their absolute weight.
  template <class Numerators, class Denominators, class Absolute, class Logarithms>
  void add_read(const Numerators& numerators, const Denominators& denominators, const Absolute& absolute,
                const Logarithms& shift, const Logarithms& gate) {
    rescale(shift, gate, 0);  // a state has taken its room itself
    values().array() += numerators.array().rowwise() * new_factor().array();
    denominator().array() += denominators.array() * new_factor().array();
    noise().array() += absolute.array() * new_factor().array();
  }

  /// Whether row i has nothing to divide by: its denominator is not above 16 u of the noise.
  [[nodiscard]] bool degenerate(Index i, Rows rows) const {
    constexpr Scalar tolerance = 16 * std::numeric_limits<Scalar>::epsilon() / 2;
    const Scalar sum = rows == Rows::signed_means ? std::abs(denominator()[i]) : denominator()[i];
    return rows != Rows::sums && sum <= tolerance * noise()[i];  // one that is not a number stays one
  }

  /// log2 |Σ_j s_ij|.
  [[nodiscard]] double log2_denominator(Index i) const {
    return denominator()[i] == Scalar(0) ? no_weight
                                         : scale()[i] + std::log2(std::abs(static_cast<double>(denominator()[i])));
  }

  /// Y ← the rows from `first` on.
  void write(Rows rows, Index first, Batch<Scalar> Y) const {
    constexpr Scalar largest = std::numeric_limits<Scalar>::max();
    for (Index t = 0; t < Y.cols(); ++t) {
      const Index i = first + t;
      if (degenerate(i, rows) || scale()[i] == no_weight)
        Y.col(t).setZero();
      else if (rows != Rows::sums && room_ > 0)  // a mean of values near the largest number can be rounded beyond it
        Y.col(t) = (values().col(i) / denominator()[i]).cwiseMin(largest).cwiseMax(-largest);
      else if (rows != Rows::sums)
        Y.col(t) = values().col(i) / denominator()[i];
      else
        set_times_power_of_two(Y.col(t), values().col(i), scale()[i]);
    }
  }

 private:
  // Raises the scales to those of a contribution and `room` above; old factors are at most 1, new ones 2^-room.
  template <class Logarithms>
  void rescale(const Logarithms& shift, const Logarithms& gate, double room) {
    for (Index i = 0; i < rows_; ++i) {
      const double whole = std::ceil(shift[i] + gate[i]), raised = std::max(scale()[i], whole + room);
      old_factor()[i] = raised == no_weight ? Scalar(0) : power_of_two<Scalar>(scale()[i] - raised);
      new_factor()[i] =
          whole == no_weight
              ? Scalar(0)
              : static_cast<Scalar>(times_power_of_two(std::exp2((shift[i] - whole) + gate[i]), whole - raised));
      scale()[i] = raised;
    }
    values().array().rowwise() *= old_factor().array();
    denominator().array() *= old_factor().array();
    noise().array() *= old_factor().array();
  }

  // Views of the rows in use; the memory only grows.
  auto values() { return Eigen::Map<Matrix<Scalar>>(values_storage_.data(), value_rows_, rows_); }
  auto values() const { return Eigen::Map<const Matrix<Scalar>>(values_storage_.data(), value_rows_, rows_); }
  auto denominator() { return sums_.row(0).head(rows_); }
  auto denominator() const { return sums_.row(0).head(rows_); }
  auto noise() { return sums_.row(1).head(rows_); }
  auto noise() const { return sums_.row(1).head(rows_); }
  auto old_factor() { return sums_.row(2).head(rows_); }
  auto new_factor() { return sums_.row(3).head(rows_); }
  auto scale() { return scale_storage_.head(rows_); }
  auto scale() const { return scale_storage_.head(rows_); }

  Index value_rows_ = 0, rows_ = 0;
  double room_ = 0;
  Vector<Scalar> values_storage_;
  Eigen::Matrix<Scalar, 4, Dynamic, Eigen::RowMajor> sums_;
  Eigen::VectorXd scale_storage_;
};

}  // namespace sympow::detail
