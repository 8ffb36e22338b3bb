// Two feature maps of one's own in all three forms: one that is only an embedding, and one that knows its score as
// well. Their forms are checked against the definition.
#include <iostream>
#include <numbers>

#include <sympow/sympow.hpp>
#include <sympow/verify/laws.hpp>

using namespace sympow;

/// φ(x) = elu(x) + 1, by entry.
struct EluPlusOne {
  static constexpr Score score = Score::embedded;             // the score of a pair is φ(q)·φ(k), whatever that is
  static constexpr bool nonnegative = true;                   // no score is negative: rows are normalised
  static constexpr bool nonnegative_entries = true;           // nor is an entry of φ: nothing cancels
  [[nodiscard]] Index dimension(Index d) const { return d; }  // D
  template <class X, class Y>
  void embed(const X& x, Y&& y) const {  // D × n from d × n
    y = (x.array() > 0).select(x.array() + 1, x.array().min(0).exp());
  }
};

/// κ(s) = (1 + s)²,   φ(x) = [1, √2 x, φ²(x)].
struct OnePlusSquared {
  static constexpr Score score = Score::embedded;
  static constexpr bool nonnegative = true;
  [[nodiscard]] Index dimension(Index d) const { return 1 + d + symmetric_dimension(d, 2); }
  template <class X, class Y>
  void embed(const X& x, Y&& y) const {
    const Matrix<typename X::Scalar> tokens = x;
    y.row(0).setOnes();
    y.middleRows(1, x.rows()) = std::numbers::sqrt2_v<typename X::Scalar> * x;
    y.bottomRows(symmetric_dimension(x.rows(), 2)) = symmetric_power<2>(tokens);
  }
  template <class Real>
  [[nodiscard]] Real kappa(Real s) const {  // φ(q)·φ(k) from s = q·k
    return (1 + s) * (1 + s);
  }
};

int main() {
  using Eigen::MatrixXd;
  const MatrixXd Q = MatrixXd::Random(8, 200), K = MatrixXd::Random(8, 200), V = MatrixXd::Random(4, 200);
  const auto law = verify::three_forms_law(EluPlusOne{}, constant_decay(.95), Q, K, V);
  std::cout << "elu(x) + 1: the forms are " << law.residual << " of the row rule apart\n";
  const auto A = constant_decay(.95) * rotary(rope_frequencies<double>(8), Pairing::interleaved);
  const auto of_kappa = verify::three_forms_law(OnePlusSquared{}, A, Q, K, V);
  std::cout << "(1 + s)²:   the forms are " << of_kappa.residual << " of the row rule apart\n";
  return law.holds() && of_kappa.holds() ? 0 : 1;
}
