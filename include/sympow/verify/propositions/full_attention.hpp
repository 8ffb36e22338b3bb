// Softmax attention in which every token sees every other one, by the causal forms.
#pragma once

#include <sympow/verify/propositions/duality.hpp>

namespace sympow::verify::detail {

/// Attention without a mask, and what a row's error is measured in: token i asks as the last one, which sees all.
template <class Scalar>
struct FullAttention {
  Matrix<Scalar> Y;
  Eigen::VectorXd unit;

  explicit FullAttention(const Tokens<Scalar>& tokens) : Y(tokens.V.rows(), tokens.V.cols()), unit(tokens.V.cols()) {
    const Index T = tokens.V.cols(), last = T - 1;
    const DenseGates open = scalar_gates(Eigen::VectorXd::Zero(T), tokens.K.rows());
    for (Index i = 0; i < T; ++i) {
      const Tokens<Scalar> seen{tokens.Q.col(i).replicate(1, T), tokens.K, tokens.V};
      const SoftmaxRows<Scalar> rows = softmax_rows(systems::nope(), open, seen);
      Y.col(i) = rows.Y.col(last);
      unit[i] = 4 * unit_roundoff<Scalar> * rows.rows.condition[last] * rows.rows.largest_value *
                (1 + std::sqrt(rows.rows.window[last]));
    }
  }

  /// The worst row against others, in its units.
  [[nodiscard]] double disagreement(const Matrix<double>& other) const {
    double worst = 0;
    for (Index i = 0; i < Y.cols(); ++i) worst = worse(worst, distance(in_double(Y.col(i)), other.col(i)) / unit[i]);
    return worst;
  }
};

}  // namespace sympow::verify::detail
