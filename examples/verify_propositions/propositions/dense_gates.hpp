// Forget gates that are any matrices: as a transition, in a recurrence and in its unrolled form.
#pragma once

#include <cmath>
#include <utility>
#include <vector>

#include <sympow/transition/transition.hpp>
#include "propositions/dense.hpp"

namespace SYMPOW_NAMESPACE::verify::detail {

/// A_i = γ_i G_i with any d × d matrices G_i, as a transition that does what the protocol says and no more. One product
/// with G_i a token, cast to the type of the keys.
class DenseGates {
 public:
  static constexpr KeyAction key_action = KeyAction::mix;

  /// One matrix a token; log γ = 0 unless given.
  explicit DenseGates(std::vector<Dense<double>> matrices)
      : log_gamma_(DenseVector<double>::zero(std::ssize(matrices))), matrices_(std::move(matrices)) {}
  DenseGates(std::vector<Dense<double>> matrices, DenseVector<double> log_gamma)
      : log_gamma_(std::move(log_gamma)), matrices_(std::move(matrices)) {}

  [[nodiscard]] Index length() const { return std::ssize(matrices_); }
  [[nodiscard]] Index key_dimension() const { return matrices_.front().rows(); }
  [[nodiscard]] double log_decay(Index token) const { return log_gamma_[token]; }
  [[nodiscard]] Eigen::MatrixXd key_matrix(Index token, Index) const { return matrix(token); }
  void check_frame(const Frame& frame, Index d) const { KeepsKeys{}.check_frame(frame, d); }

  /// G of a token.
  [[nodiscard]] const Dense<double>& matrix(Index token) const { return matrices_[static_cast<std::size_t>(token)]; }
  /// A = γ G of a token.
  [[nodiscard]] Dense<double> gate(Index token) const { return std::exp(log_decay(token)) * matrix(token); }

  template <class S>
  void to_segment_frame(Frame&, Segment segment, Batch<S> queries, Batch<S> keys, Batch<S> logits) const {
    for (Index j = segment.size - 1; j >= 0; --j) {
      if (logits.size() != 0)
        for (Index i = j; i < segment.size; ++i) logits(j, i) = queries.col(i).dot(keys.col(j));
      apply_to_queries<S>({segment.begin + j, 1}, queries.rightCols(segment.size - j));
    }
    for (Index j = 1; j < segment.size; ++j) apply_to_keys<S>({segment.begin + j, 1}, keys.leftCols(j));
  }
  template <class S>
  void apply_to_queries(Segment segment, Batch<S> queries) const {
    for (Index t = segment.end() - 1; t >= segment.begin; --t) queries = matrix(t).to<S>() * Dense<S>(queries);
  }
  template <class S>
  void apply_to_keys(Segment segment, Batch<S> keys) const {
    for (Index t = segment.begin; t < segment.end(); ++t) keys = matrix(t).to<S>().transpose() * Dense<S>(keys);
  }
  template <class S>
  void apply_to_state(Segment segment, Batch<S> X) const {
    for (Index t = segment.begin; t < segment.end(); ++t) X = Dense<S>(X) * matrix(t).to<S>();
  }

 private:
  DenseVector<double> log_gamma_;
  std::vector<Dense<double>> matrices_;
};

/// γ_i I.
[[nodiscard]] inline DenseGates scalar_gates(const DenseVector<double>& log_gamma, Index d) {
  return {{static_cast<std::size_t>(log_gamma.size()), Dense<double>::identity(d)}, log_gamma};
}

/// I - β_i w_i w_iᵀ for the columns of w, times γ_i if given.
[[nodiscard]] inline DenseGates reflections(const Dense<double>& W, const DenseVector<double>& beta,
                                            const DenseVector<double>& log_gamma) {
  std::vector<Dense<double>> matrices;
  for (Index t = 0; t < W.cols(); ++t) {
    const DenseVector<double> w = W.column(t);
    matrices.push_back(Dense<double>::identity(W.rows()) - beta[t] * w * w.transpose());
  }
  return {std::move(matrices), log_gamma};
}

/// A_1 A_2 … A_n by the definition of a transition, dense and in double.
template <Transition A>
[[nodiscard]] Dense<double> product_of_gates(const A& transition, Index n, Index d) {
  Dense<double> product = Dense<double>::identity(d);
  for (Index t = 0; t < n; ++t) {
    const Dense<double> G = transition.key_matrix(t, d);
    product = std::exp(transition.log_decay(t)) * product * G;
  }
  return product;
}

/// S_t = S_{t-1} A_t + v_t k_tᵀ, o_t = S_t q_t, as the text prints it.
[[nodiscard]] inline Dense<double> gated_recurrence(const DenseGates& gates, const Dense<double>& Q,
                                                    const Dense<double>& K, const Dense<double>& V) {
  Dense<double> S = Dense<double>::zero(V.rows(), K.rows()), Y(V.rows(), V.cols());
  for (Index t = 0; t < V.cols(); ++t) {
    S = S * gates.gate(t) + V.column(t) * K.column(t).transpose();
    Y.col(t) = S * Q.column(t);
  }
  return Y;
}

/// k_jᵀ G_{j+1} G_{j+2} … G_i q_i, 0 for j > i; token i is column i.
[[nodiscard]] inline Dense<double> ascending_products(const DenseGates& gates, const Dense<double>& Q,
                                                      const Dense<double>& K) {
  Dense<double> scores = Dense<double>::zero(K.cols(), Q.cols());
  for (Index i = 0; i < Q.cols(); ++i) {
    DenseVector<double> x = Q.column(i);
    for (Index j = i; j >= 0; --j) {
      scores(j, i) = K.column(j).dot(x);
      x = gates.matrix(j) * x;
    }
  }
  return scores;
}

/// The same in the other order, k_jᵀ G_i G_{i-1} … G_{j+1} q_i.
[[nodiscard]] inline Dense<double> descending_products(const DenseGates& gates, const Dense<double>& Q,
                                                       const Dense<double>& K) {
  Dense<double> scores = Dense<double>::zero(K.cols(), Q.cols());
  for (Index j = 0; j < K.cols(); ++j) {
    Dense<double> product = Dense<double>::identity(K.rows());
    for (Index i = j; i < Q.cols(); ++i) {
      if (i > j) product = gates.matrix(i) * product;
      scores(j, i) = K.column(j).dot(product * Q.column(i));
    }
  }
  return scores;
}

}  // namespace SYMPOW_NAMESPACE::verify::detail
