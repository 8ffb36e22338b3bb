// A mixing transition of one's own: what a token erases is read along one vector and taken out along another.
#include <iostream>

#include <sympow/sympow.hpp>
#include <sympow/verify/laws.hpp>

using namespace sympow;
using Eigen::MatrixXd;

/// A_i = I - u_i w_iᵀ. With u_i = β_i w_i it is a Householder chain.
class Erasure {
 public:
  static constexpr KeyAction key_action = KeyAction::mix;  // any matrix: a state is multiplied by it

  Erasure(MatrixXd u, MatrixXd w) : u_(std::move(u)), w_(std::move(w)) {}  // d × T each

  [[nodiscard]] Index length() const { return w_.cols(); }
  [[nodiscard]] Index key_dimension() const { return w_.rows(); }
  [[nodiscard]] double log_decay(Index) const { return 0; }
  [[nodiscard]] MatrixXd key_matrix(Index i, Index d) const {
    return MatrixXd::Identity(d, d) - u_.col(i) * w_.col(i).transpose();
  }
  void check_frame(const Frame& frame, Index) const { frame.require(); }  // it has no coordinates of its own

  // logits(j, i) = q_iᵀ A_iᵀ … A_{j+1}ᵀ k_j; queries go back to the segment's start, keys on to its end.
  void to_segment_frame(Frame&, Segment s, Batch<double> Q, Batch<double> K, Batch<double> logits) const {
    for (Index t = 0; t < s.size; ++t) {
      apply_to_keys({s.begin + t, 1}, K.leftCols(t));
      if (logits.size() != 0) logits.col(t).head(t + 1) = K.leftCols(t + 1).transpose() * Q.col(t);
      apply_to_queries({s.begin, t + 1}, Q.middleCols(t, 1));
    }
  }
  void apply_to_queries(Segment s, Batch<double> Q) const {  // Q ← A_a … A_b Q
    for (Index i = s.end() - 1; i >= s.begin; --i) Q -= u_.col(i) * (w_.col(i).transpose() * Q).eval();
  }

  // What moves a state. Without these two there is the attention form.
  void apply_to_keys(Segment s, Batch<double> K) const {  // K ← (A_a … A_b)ᵀ K
    for (Index i = s.begin; i < s.end(); ++i) K -= w_.col(i) * (u_.col(i).transpose() * K).eval();
  }
  void apply_to_state(Segment s, Batch<double> X) const {  // X ← X A_a … A_b
    for (Index i = s.begin; i < s.end(); ++i) X -= (X * u_.col(i)).eval() * w_.col(i).transpose();
  }

 private:
  MatrixXd u_, w_;
};

int main() {
  const Index d = 8, e = 4, T = 300;
  const MatrixXd Q = MatrixXd::Random(d, T), K = MatrixXd::Random(d, T), V = MatrixXd::Random(e, T);
  const MatrixXd w = MatrixXd::Random(d, T).colwise().normalized(), u = .5 * w + .1 * MatrixXd::Random(d, T);
  const auto of = [&](Segment s) {
    return constant_decay(.99) * Erasure(u.middleCols(s.begin, s.size), w.middleCols(s.begin, s.size));
  };
  const auto forms = verify::three_forms_law(Linear{}, of({0, T}), Q, K, V);
  const auto split = verify::splitting_law(Linear{}, of, Q, K, V, 77);
  const auto dual = verify::three_forms_law(Exponential{}, of({0, T}), Q, K, V);  // softmax: the attention form
  std::cout << "forms " << forms.residual << ", split " << split.residual << ", softmax " << dual.residual
            << " of the row rule\n";
  return forms.holds() && split.holds() && dual.holds() ? 0 : 1;
}
