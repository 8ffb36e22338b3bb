// Forget gates that are any matrices: as a transition, in a recurrence and in its unrolled form.
#pragma once

#include <cmath>
#include <utility>
#include <vector>

#include <sympow/transition/halves.hpp>
#include <sympow/transition/transition.hpp>

namespace sympow::verify::detail {

/// A_i = γ_i G_i with any d × d matrices G_i, as a transition. One product with G_i a token, cast to the type of the keys.
class DenseGates {
 public:
  static constexpr KeyAction key_action = KeyAction::mix;

  /// One matrix a token; log γ = 0 unless given.
  explicit DenseGates(std::vector<Matrix<double>> matrices)
      : log_gamma_(Eigen::VectorXd::Zero(std::ssize(matrices))), matrices_(std::move(matrices)) {}
  DenseGates(std::vector<Matrix<double>> matrices, Eigen::VectorXd log_gamma)
      : log_gamma_(std::move(log_gamma)), matrices_(std::move(matrices)) {}

  [[nodiscard]] Index length() const { return std::ssize(matrices_); }
  [[nodiscard]] Index key_dimension() const { return matrices_.front().rows(); }
  [[nodiscard]] double log_decay(Index token) const { return log_gamma_[token]; }
  [[nodiscard]] Eigen::MatrixXd key_matrix(Index token, Index) const { return matrix(token); }
  void check_frame(const Frame& frame, Index d) const { LeavesKeys{}.check_frame(frame, d); }

  /// G of a token.
  [[nodiscard]] const Matrix<double>& matrix(Index token) const { return matrices_[static_cast<std::size_t>(token)]; }
  /// A = γ G of a token.
  [[nodiscard]] Matrix<double> gate(Index token) const { return std::exp(log_decay(token)) * matrix(token); }

  template <class S>
  void transport(Frame&, Segment segment, Batch<S> queries, Batch<S> keys, Batch<S> logits) const {
    sympow::detail::transport_by_halves<S>(*this, segment, queries, keys, logits);
  }
  [[nodiscard]] Index middle(Segment segment) const { return segment.begin + segment.size / 2; }
  template <class S>
  void transport_piece(Segment segment, Batch<S> queries, Batch<S> keys, Batch<S> logits) const {
    if (logits.size() != 0) logits(0, 0) = queries.col(0).dot(keys.col(0));
    pull<S>(segment, queries);
  }
  template <class S>
  void pull(Segment segment, Batch<S> queries) const {
    for (Index t = segment.end() - 1; t >= segment.begin; --t)
      queries = (matrix(t).template cast<S>() * queries).eval();
  }
  template <class S>
  void push(Segment segment, Batch<S> keys) const {
    for (Index t = segment.begin; t < segment.end(); ++t)
      keys = (matrix(t).template cast<S>().transpose() * keys).eval();
  }
  template <class S>
  void advance(Segment segment, Batch<S> X) const {
    for (Index t = segment.begin; t < segment.end(); ++t) X = (X * matrix(t).template cast<S>()).eval();
  }

 private:
  Eigen::VectorXd log_gamma_;
  std::vector<Matrix<double>> matrices_;
};

/// γ_i I.
[[nodiscard]] inline DenseGates scalar_gates(const Eigen::VectorXd& log_gamma, Index d) {
  return {{static_cast<std::size_t>(log_gamma.size()), Matrix<double>::Identity(d, d)}, log_gamma};
}

/// I - β_i w_i w_iᵀ for the columns of w, times γ_i if given.
[[nodiscard]] inline DenseGates reflections(const Matrix<double>& w, const Eigen::VectorXd& beta,
                                            const Eigen::VectorXd& log_gamma) {
  std::vector<Matrix<double>> matrices;
  for (Index t = 0; t < w.cols(); ++t)
    matrices.push_back(Matrix<double>::Identity(w.rows(), w.rows()) - beta[t] * w.col(t) * w.col(t).transpose());
  return {std::move(matrices), log_gamma};
}

/// A_1 A_2 … A_n by the definition of a transition, dense and in double.
template <Transition A>
[[nodiscard]] Matrix<double> product_of_gates(const A& transition, Index n, Index d) {
  Matrix<double> product = Matrix<double>::Identity(d, d);
  for (Index t = 0; t < n; ++t)
    product = (std::exp(transition.log_decay(t)) * product * transition.key_matrix(t, d)).eval();
  return product;
}

/// S_t = S_{t-1} A_t + v_t k_tᵀ, o_t = S_t q_t, as the text prints it.
[[nodiscard]] inline Matrix<double> gated_recurrence(const DenseGates& gates, const Matrix<double>& Q,
                                                     const Matrix<double>& K, const Matrix<double>& V) {
  Matrix<double> S = Matrix<double>::Zero(V.rows(), K.rows()), Y(V.rows(), V.cols());
  for (Index t = 0; t < V.cols(); ++t) {
    S = (S * gates.gate(t)).eval() + V.col(t) * K.col(t).transpose();
    Y.col(t) = S * Q.col(t);
  }
  return Y;
}

/// k_jᵀ G_{j+1} G_{j+2} … G_i q_i, 0 for j > i; token i is column i.
[[nodiscard]] inline Matrix<double> ascending_products(const DenseGates& gates, const Matrix<double>& Q,
                                                       const Matrix<double>& K) {
  Matrix<double> scores = Matrix<double>::Zero(K.cols(), Q.cols());
  for (Index i = 0; i < Q.cols(); ++i) {
    Eigen::VectorXd x = Q.col(i);
    for (Index j = i; j >= 0; --j) {
      scores(j, i) = K.col(j).dot(x);
      x = (gates.matrix(j) * x).eval();
    }
  }
  return scores;
}

/// The same in the other order, k_jᵀ G_i G_{i-1} … G_{j+1} q_i.
[[nodiscard]] inline Matrix<double> descending_products(const DenseGates& gates, const Matrix<double>& Q,
                                                        const Matrix<double>& K) {
  Matrix<double> scores = Matrix<double>::Zero(K.cols(), Q.cols());
  for (Index j = 0; j < K.cols(); ++j) {
    Matrix<double> product = Matrix<double>::Identity(K.rows(), K.rows());
    for (Index i = j; i < Q.cols(); ++i) {
      if (i > j) product = (gates.matrix(i) * product).eval();
      const Eigen::VectorXd x = product * Q.col(i);
      scores(j, i) = K.col(j).dot(x);
    }
  }
  return scores;
}

}  // namespace sympow::verify::detail
