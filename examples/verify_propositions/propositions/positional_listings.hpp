// The listings of "On the Legacy of Linear Transformers in Positional Embeddings", line by line in C++, with their
// faults.
#pragma once

#include <cmath>
#include <utility>
#include <vector>

#include "propositions/duality.hpp"

namespace SYMPOW_NAMESPACE::verify::detail {

// Where a listing has rows of tokens, they are columns here: its T × T results stand transposed, entry (j, i) for row i
// and column j.

/// alibi(T, lambd): -(|I - J| λ).tril().
[[nodiscard]] inline Dense<double> listed_alibi(Index T, double lambda) {
  return causal_matrix(T, [=](Index i, Index j) { return -(std::abs(static_cast<double>(i - j)) * lambda); }, 0);
}

/// fox_pe(w, x) with w a d × 1 matrix: the differences of cumsum(logsigmoid(wᵀ x)), tril().
[[nodiscard]] inline Dense<double> listed_fox_pe(const DenseVector<double>& w, const Dense<double>& x) {
  DenseVector<double> a = systems::log_sigmoid(x.transpose() * w);
  for (Index t = 1; t < a.size(); ++t) a[t] += a[t - 1];
  return causal_matrix(a.size(), [&](Index i, Index j) { return a[i] - a[j]; }, 0);
}

/// softmax(Q.T @ K + D_add) @ V.T, the line of att_alibi and fox; without a mask. `D` is what it adds.
[[nodiscard]] inline Dense<double> listed_attention(const Tokens<double>& tokens, const Dense<double>& D) {
  return tokens.V * softmax(tokens.logits() + D);
}

/// rotate(x) of rope: coordinates 2n and 2n + 1 of token t turn by t / 10000^{2n/d}, t from 0.
[[nodiscard]] inline Dense<double> listed_rotate(const Dense<double>& x) {
  Dense<double> y(x.rows(), x.cols());
  for (Index t = 0; t < x.cols(); ++t)
    for (Index n = 0; n < x.rows(); n += 2) {
      const double m = static_cast<double>(n) / static_cast<double>(x.rows());
      const double angle = 1.0 / std::pow(10000, m) * static_cast<double>(t);
      y(n, t) = x(n, t) * std::cos(angle) - x(n + 1, t) * std::sin(angle);
      y(n + 1, t) = x(n, t) * std::sin(angle) + x(n + 1, t) * std::cos(angle);
    }
  return y;
}

/// rope(Q, K, V): softmax of the rotated, without a mask; `D` is added to its logits.
[[nodiscard]] inline Dense<double> listed_rope(const Tokens<double>& tokens, const Dense<double>& D) {
  return listed_attention({listed_rotate(tokens.Q), listed_rotate(tokens.K), tokens.V}, D);
}

/// Which of its two wrong lines PaTH_attn keeps.
struct PathFaults {
  bool gate = false;   ///< H = β (I - k kᵀ), not I - β k kᵀ
  bool order = false;  ///< P = H[s] @ P, not P = P @ H[s]
};

/// The scores of PaTH_attn(Q, K) with token j in column j: K[j] @ (P @ Q[i]) for j ≤ i, else 0.
[[nodiscard]] inline Dense<double> listed_path_scores(const Dense<double>& Q, const Dense<double>& K,
                                                      const DenseVector<double>& beta, PathFaults faults) {
  const Dense<double> I = Dense<double>::identity(K.rows());
  std::vector<Dense<double>> H;
  for (Index s = 0; s < K.cols(); ++s) {
    const Dense<double> outer = K.column(s) * K.column(s).transpose();
    H.push_back(faults.gate ? beta[s] * (I - outer) : I - beta[s] * outer);
  }
  const DenseGates gates(std::move(H));
  return faults.order ? descending_products(gates, Q, K) : ascending_products(gates, Q, K);
}

/// Path-Fox(Q, K): scores + D_add.
[[nodiscard]] inline Dense<double> listed_path_fox(const Dense<double>& scores, const DenseVector<double>& w,
                                                   const Dense<double>& x) {
  return scores + listed_fox_pe(w, x);
}

}  // namespace SYMPOW_NAMESPACE::verify::detail
