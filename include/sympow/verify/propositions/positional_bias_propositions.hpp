// ALiBi as a gate, and softmax attention with rotary and ALiBi as a conformal recurrence.
#pragma once

#include <sympow/feature/exponential.hpp>
#include <sympow/rotation/block_rotation.hpp>
#include <sympow/tensor/induced.hpp>
#include <sympow/tensor/tensor_power.hpp>
#include <sympow/transition/decay.hpp>
#include <sympow/transition/product.hpp>
#include <sympow/transition/rotary.hpp>
#include <sympow/verify/propositions/sequence.hpp>

namespace sympow::verify {
namespace detail {

/// A vector whose inner products are (x·y)^n: φ^n(x), or φ^8(x) ⊗ … beyond the powers that have an embedding (Result 1).
template <class Scalar>
[[nodiscard]] Vector<Scalar> any_power(const Vector<Scalar>& x, int n) {
  if (n == 0) return Vector<Scalar>::Ones(1);
  const Vector<Scalar> low = symmetric_power(x, std::min(n, max_power));
  if (n <= max_power) return low;
  return tensor_product(low, any_power<Scalar>(x, n - max_power));
}

/// φ = ⊕_{n ≤ degree} φ^n / √n!, whose inner products are the Taylor polynomial of exp. For an even degree that has no zero.
struct TaylorFeatures {
  static constexpr Score score = Score::embedded;
  static constexpr bool nonnegative = true;
  int degree = 6;

  [[nodiscard]] Index dimension(Index d) const { return features<double>(Eigen::VectorXd::Zero(d)).size(); }
  template <class X, class Y>
  void embed(const X& x, Y&& y) const {
    using Scalar = typename std::remove_cvref_t<Y>::Scalar;
    for (Index t = 0; t < x.cols(); ++t) y.col(t) = features<Scalar>(x.col(t));
  }

 private:
  template <class Scalar>
  [[nodiscard]] Vector<Scalar> features(const Vector<Scalar>& x) const {
    Vector<Scalar> phi(0);
    double n_factorial = 1;
    for (int n = 0; n <= degree; n_factorial *= ++n) {
      const Vector<Scalar> power = any_power<Scalar>(x, n) * static_cast<Scalar>(1 / std::sqrt(n_factorial));
      phi.conservativeResize(phi.size() + power.size());
      phi.tail(power.size()) = power;
    }
    return phi;
  }
};

/// Σ_{n ≤ degree} s^n / n!
[[nodiscard]] inline double taylor(double s, int degree) {
  double sum = 1, term = 1;
  for (int n = 1; n <= degree; ++n) sum += term *= s / n;
  return sum;
}

/// What the polynomial leaves out at most, relative to exp: |s| ≤ t gives t^{n+1}/(n+1)! e^t for n = degree.
[[nodiscard]] inline double taylor_remainder(double t, int degree) {
  return std::exp((degree + 1) * std::log(t) - std::lgamma(degree + 2.0) + t);
}

/// The columns shrunk to a norm of at most `radius`.
template <class Scalar>
[[nodiscard]] Matrix<Scalar> within(const Matrix<Scalar>& x, double radius) {
  return (in_double(x) * (radius / in_double(x).colwise().norm().maxCoeff())).template cast<Scalar>();
}

template <class Scalar>
void bias_as_gate(Ledger& ledger, const Sequence<Scalar>& x, double m) {
  const auto gate = constant_decay(std::exp(-m));
  const auto biased = [&](Index i, Index j) { return x.q(i).dot(x.k(j)) + m * static_cast<double>(j - i); };
  const auto rows = direct_attention(Exponential{}, gate, in_double(x.Q), in_double(x.K), in_double(x.V));
  const Matrix<double> softmax = attend([&](Index i, Index j) { return std::exp(biased(i, j)); }, x.V);
  ledger.holds("AL1",
               row_rule<DefaultNormalization, Exponential>(rows, attention(Exponential{}, gate, x.Q, x.K, x.V), softmax,
                                                           unit_roundoff<Scalar>),
               1, "exp(q·k + m(j - i)) = γ^{i-j} exp(q·k) for j ≤ i with γ = e^{-m}, in units of the row rule",
               "A A.2; B §5");
  ledger.control("AL2", -constant_decay(0.2).log_decay(0), 1,
                 "'equivalent to scalar gating': slopes m < 1 reach every gate; γ = .2 asks for m = 1.6, and γ_i(X) "
                 "for no fixed m",
                 "A A.2");
  const Matrix<double> squares = attend([&](Index i, Index j) { return std::pow(biased(i, j), 2); }, x.V);
  const double apart = distance(in_double(attention(SymmetricPower<2>{}, gate, x.Q, x.K, x.V)), squares);
  // The row of the first token is always its value; of the others no weight exceeds 1.
  ledger.control("AL3", apart / in_double(x.V).cwiseAbs().maxCoeff(), 1e-3,
                 "an additive bias inside (·)^p is a gate: only exp turns sums into products", "A A.2 (scope)");
}

/// S_i = e^{-m} S_{i-1} R̄ + [v_i; 1] φ(k_i)ᵀ with R̄ = diag(1, Sym¹(R), …, Sym⁶(R)), dense and in double, read by φ(q_i).
template <class Scalar>
[[nodiscard]] Matrix<double> conformal_rnn(const Matrix<Scalar>& Q, const Matrix<Scalar>& K, const Matrix<Scalar>& V,
                                           const Eigen::VectorXd& theta, double m) {
  const TaylorFeatures taylor_features;
  const Index D = taylor_features.dimension(Q.rows());
  const BlockRotation<double> R(theta);
  Matrix<double> turn = Matrix<double>::Identity(D, D), S = Matrix<double>::Zero(V.rows() + 1, D),
                 Y(V.rows(), V.cols());
  Index begin = 1;
  const auto place = [&](const Matrix<double>& block) {
    turn.block(begin, begin, block.rows(), block.rows()) = block;
    begin += block.rows();
  };
  [&]<int... P>(std::integer_sequence<int, P...>) {
    (place(induced<P + 1>(R).toDenseMatrix()), ...);
  }(std::make_integer_sequence<int, 6>{});
  Matrix<double> phi_q(D, Q.cols()), phi_k(D, K.cols());
  taylor_features.embed(in_double(Q), phi_q);
  taylor_features.embed(in_double(K), phi_k);
  for (Index i = 0; i < V.cols(); ++i) {
    Eigen::VectorXd extended(V.rows() + 1);
    extended << V.col(i).template cast<double>(), 1;
    S = (std::exp(-m) * S * turn + extended * phi_k.col(i).transpose()).eval();
    const Eigen::VectorXd sums = S * phi_q.col(i);
    Y.col(i) = sums.head(V.rows()) / sums[V.rows()];
  }
  return Y;
}

template <class Scalar>
void softmax_as_recurrence(Ledger& ledger, const Sequence<Scalar>& x, double m) {
  constexpr double radius = 1.2;
  const Eigen::VectorXd theta = Eigen::VectorXd::Constant(1, 0.3);
  const Matrix<Scalar> Q = within<Scalar>(x.Q.topRows(2), radius), K = within<Scalar>(x.K.topRows(2), radius);
  const auto transition = constant_decay(std::exp(-m)) * rotary(theta);
  const auto s = forms(TaylorFeatures{}, transition, Q, K, x.V);
  const auto score = [&](Index i, Index j) {
    const auto apart = static_cast<double>(i - j);
    const double logit =
        Q.col(i).template cast<double>().dot(rotation_matrix(-apart * theta) * K.col(j).template cast<double>());
    return taylor(logit, 6) * std::exp(-m * apart);
  };
  const double softmax_polynomial = s.disagreement(attend(score, x.V)),
               state = s.disagreement(conformal_rnn(Q, K, x.V, theta, m));
  ledger.holds("AL4", worse(softmax_polynomial, state), turning_bound<Scalar>(6, x.T),
               "softmax with rotary and ALiBi as a conformal recurrence: exact for the Taylor features of degree 6, in "
               "units of the row rule",
               "B introduction, §4");

  const TaylorFeatures many{24};
  Matrix<Scalar> phi_q(many.dimension(2), Q.cols()), phi_k(many.dimension(2), K.cols());
  many.embed(Q, phi_q);
  many.embed(K, phi_k);
  const Matrix<double> exact = (in_double(K).transpose() * in_double(Q)).array().exp(),
                       found = in_double(phi_k).transpose() * in_double(phi_q);
  // A monomial of degree n is rounded 2n times or less, Σ_n 2n t^n/n! = 2t e^t with t = ‖q‖‖k‖ at most radius²; and D are summed.
  const double t = radius * radius, size = std::exp(t), sum = 2 * std::sqrt(static_cast<double>(phi_q.rows()));
  ledger.holds("AL5", distance(found, exact) / size,
               (8 * (1 + 2 * t) + sum) * unit_roundoff<Scalar> + taylor_remainder(t, 24),
               "⊕_{n ≤ 24} φ^n/√n! has the inner products exp(q·k); relative to exp(‖q‖ ‖k‖)", "B introduction");

  // Weights off by a factor 1 ± δ move a mean by at most 2δ/(1-δ) max |V|.
  const double delta = taylor_remainder(t, 6);
  const Matrix<double> difference =
      in_double(s.outputs[1]) - in_double(attention(Exponential{}, transition, Q, K, x.V));
  ledger.holds("AL6", distance(difference, Matrix<double>::Zero(x.e, x.T)) / s.rows.largest_value,
               2 * delta / (1 - delta), "truncation of AL4 against true softmax attention, in units of max |V|",
               "B introduction");
}

}  // namespace detail

/// Every statement about ALiBi and about softmax attention as a recurrence.
///
/// AL1 to AL6. Source: Conformal Transformations, A.2; Improving Symmetric Power Transformers, introduction, §4 and §5.
template <class Scalar>
void positional_bias_propositions(Ledger& ledger, std::uint64_t seed) {
  const detail::Sequence<Scalar> x(seed);
  constexpr double m = 0.25;
  detail::bias_as_gate(ledger, x, m);
  detail::softmax_as_recurrence(ledger, x, m);
}

}  // namespace sympow::verify
