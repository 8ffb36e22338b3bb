// Keys with all that rows and states need of them.
#pragma once

#include <sympow/attention/columns.hpp>
#include <sympow/attention/weights.hpp>

namespace SYMPOW_NAMESPACE::detail {

/// Powers of two by which weights stay below 1, or above it if negative, so that weighted values and their sums do not
/// leave the type: half its range where the largest value is farther from 1 than that.
template <class Scalar>
double room_for(Scalar largest) {
  using Limits = std::numeric_limits<Scalar>;
  constexpr int half = Limits::max_exponent / 2;
  if (largest > std::ldexp(Scalar(1), half)) return largest <= Limits::max() ? half : 0;
  return largest > Scalar(0) && largest < std::ldexp(Scalar(1), -half) ? -half : 0;
}

/// Keys k_j = 2^{n_j} vectors_j that have decayed by b_j up to some time, and their values. (Before it b_j is above 1.)
template <class Scalar>
struct Keys {
  MatrixView<Scalar> vectors;                 ///< what logits are made of: keys, or φ of them for an embedded score
  MatrixView<const Scalar> values;            ///< e × n
  ColumnView<const double> exponents, log_b;  ///< n
  ColumnView<const double> log_b_low;         ///< what log_b has lost to rounding; empty where nobody has counted
  ColumnView<const Scalar> norms;             ///< ‖vectors_j‖ before a transition has changed it
  ColumnView<const Scalar> lengths;           ///< ‖vectors_j‖
  ColumnView<const Scalar> weights;           ///< w_j = b_j 2^{P n_j - M}
  double M;                                   ///< a whole number
  Extent<Scalar> extent;                      ///< of the values

  /// No keys, of so many rows and values of so many.
  static Keys none(Index rows, Index value_rows) {
    const ColumnView<double> no_logarithms(nullptr, 0);
    const ColumnView<Scalar> no_numbers(nullptr, 0);
    return {{nullptr, rows, 0}, MatrixView<Scalar>(nullptr, value_rows, 0),
            no_logarithms,      no_logarithms,
            no_logarithms,      no_numbers,
            no_numbers,         no_numbers,
            no_weight,          {}};
  }

  [[nodiscard]] Index size() const { return values.cols(); }
};

/// Their decay up to a later time: b_j and e^since.
template <class Scalar>
void set_log_b_at_end(const Keys<Scalar>& keys, const LogDecay& since, ColumnView<double> log_b,
                      ColumnView<double> low) {
  for (Index j = 0; j < keys.size(); ++j) {
    LogDecay sum = since;
    sum.add(LogDecay{keys.log_b[j], keys.log_b_low[j]});
    log_b[j] = std::min(0.0, sum.high);
    low[j] = sum.low;
  }
}

}  // namespace SYMPOW_NAMESPACE::detail
