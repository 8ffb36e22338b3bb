// Softmax attention in which every token sees every other one, by the causal forms.
#pragma once

#include "propositions/duality.hpp"

namespace SYMPOW_NAMESPACE::verify::detail {

/// Attention without a mask, and what a row's error is measured in: token i asks as the last one, which sees all.
template <class Scalar>
struct FullAttention {
  Dense<Scalar> Y;
  DenseVector<double> unit;

  explicit FullAttention(const Tokens<Scalar>& tokens) : Y(tokens.V.rows(), tokens.V.cols()), unit(tokens.V.cols()) {
    const Index T = tokens.V.cols(), last = T - 1;
    const DenseGates open = scalar_gates(DenseVector<double>::zero(T), tokens.K.rows());
    for (Index i = 0; i < T; ++i) {
      Tokens<Scalar> seen = tokens;
      for (Index t = 0; t < T; ++t)
        for (Index r = 0; r < seen.Q.rows(); ++r) seen.Q(r, t) = tokens.Q(r, i);
      const auto [rows, of_all] = softmax_rows(systems::nope(), open, seen);
      for (Index r = 0; r < Y.rows(); ++r) Y(r, i) = of_all(r, last);
      unit[i] =
          4 * unit_roundoff<Scalar> * rows.condition[last] * rows.largest_value * (1 + std::sqrt(rows.window[last]));
    }
  }

  /// The worst row against others, in its units.
  [[nodiscard]] double disagreement(const Dense<double>& other) const {
    double worst = 0;
    for (Index i = 0; i < Y.cols(); ++i)
      worst = worse(worst, (Y.column(i).in_double() - other.column(i)).largest() / unit[i]);
    return worst;
  }
};

}  // namespace SYMPOW_NAMESPACE::verify::detail
