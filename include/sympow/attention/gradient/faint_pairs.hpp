// Rows whose scores are all far below the weights of their keys.
#pragma once

#include <sympow/attention/keys.hpp>

namespace SYMPOW_NAMESPACE::detail {

/// Over keys j of weights w_j = b_j 2^{P n_j} and a row's logits x_j, the largest score w_j |x_j|^P and the largest
/// slope w_j |x_j|^{P-1}, by their log2.
template <int P>
struct Peak {
  double score = no_weight, slope = no_weight;

  /// Adds sums of this weight.
  void add(double log2_weight) {
    score = std::max(score, log2_weight);
    slope = std::max(slope, log2_weight);
  }
  /// Adds the first keys, which decay by e^between.
  template <class Scalar>
  void add(ColumnView<const Scalar> x, const Keys<Scalar>& keys, const LogDecay& between) {
    for (Index j = 0; j < x.size(); ++j) {
      const double w = P * keys.exponents[j] + (keys.log_b[j] + between.high) * std::numbers::log2e,
                   size = std::log2(std::abs(static_cast<double>(x[j])));
      score = std::max(score, w + P * size);
      slope = std::max(slope, P == 1 ? w : w + (P - 1) * size);
    }
  }
};

/// A row is faint if all its scores are far below the weight of the heaviest key that it sees, as those with keys that
/// are nearly orthogonal to its query are: x_j^P may be below all numbers where x_j is not, or w_j above them. Beside
/// 2^E, near its largest score,
///
///     w_j 2^{-E} = 2^{P c_j} w'_j,   w'_j in (2^-P, 1],   x'_j = 2^{c_j} x_j        s_j = 2^E x'_j^P w'_j
///
/// where c_j is a whole number, so that nothing is rounded but w'_j, and |x'_j| is at most about 1: a far larger logit
/// of a key that has decayed as well. What the loss gains by x_j is 2^{c_j} times what it gains by x'_j.
template <int P, class Scalar>
class FaintPairs {
 public:
  /// Memory of a number for every key.
  FaintPairs(ColumnView<double> exponents, ColumnView<Scalar> weights) : exponents_(exponents), weights_(weights) {}

  /// x ← x' for the first keys, which decay by e^between; returns w'.
  ColumnView<const Scalar> bring_near(ColumnView<Scalar> x, const Keys<Scalar>& keys, const LogDecay& between,
                                      double E) {
    for (Index j = 0; j < weights_.size(); ++j) {
      LogDecay gate = between;
      gate.add(LogDecay{keys.log_b[j], keys.log_b_low[j]});
      const double c = std::ceil(keys.exponents[j] + (gate.high * std::numbers::log2e - E) / P);
      exponents_[j] = c;
      x[j] = c == no_weight ? x[j] * Scalar(0) : times_power_of_two(x[j], c);
      weights_[j] = c == no_weight ? Scalar(0) : static_cast<Scalar>(gate.weight(P * (keys.exponents[j] - c) - E));
    }
    return weights_;
  }
  /// From what the loss gains by x' to 2^-slope of what it gains by x.
  void bring_back(ColumnView<Scalar> d_logits, double slope) const {
    for (Index j = 0; j < weights_.size(); ++j)
      if (exponents_[j] != no_weight) d_logits[j] = times_power_of_two(d_logits[j], exponents_[j] - slope);
  }

 private:
  ColumnView<double> exponents_;
  ColumnView<Scalar> weights_;
};

}  // namespace SYMPOW_NAMESPACE::detail
