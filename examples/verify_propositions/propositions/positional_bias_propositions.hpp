// ALiBi as a gate, and softmax attention with rotary and ALiBi as a conformal recurrence.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include <sympow/feature/exponential.hpp>
#include <sympow/tensor/induced.hpp>
#include <sympow/tensor/tensor_power.hpp>
#include <sympow/transition/decay.hpp>
#include <sympow/transition/product.hpp>
#include <sympow/transition/rotary.hpp>
#include "propositions/sequence.hpp"

namespace SYMPOW_NAMESPACE::verify {
namespace detail {

/// A vector whose inner products are (x·y)^n: φ^n(x), or φ^8(x) ⊗ … beyond the powers that have an embedding (Result
/// 1).
template <class Scalar>
[[nodiscard]] Vector<Scalar> any_power(const Vector<Scalar>& x, int n) {
  if (n == 0) return DenseVector<Scalar>::constant(1, 1, 1);
  const Vector<Scalar> low = symmetric_power(x, std::min(n, max_power));
  if (n <= max_power) return low;
  const Vector<Scalar> high = any_power<Scalar>(x, n - max_power);
  return tensor_product(low, high);
}

/// φ = ⊕_{n ≤ degree} φ^n / √n!, whose inner products are the Taylor polynomial of exp. For an even degree that has no
/// zero.
template <class Scalar>
[[nodiscard]] DenseVector<Scalar> taylor_features(const DenseVector<Scalar>& x, int degree) {
  std::vector<Scalar> phi;
  double n_factorial = 1;
  for (int n = 0; n <= degree; n_factorial *= ++n) {
    const auto weight = static_cast<Scalar>(1 / std::sqrt(n_factorial));
    for (const Scalar entry : any_power<Scalar>(x, n)) phi.push_back(entry * weight);
  }
  DenseVector<Scalar> features(std::ssize(phi));
  std::copy(phi.begin(), phi.end(), features.data());
  return features;
}

template <class Scalar>
[[nodiscard]] Dense<Scalar> taylor_features_of_columns(const Dense<Scalar>& x, int degree) {
  Dense<Scalar> phi;
  for (Index t = 0; t < x.cols(); ++t) {
    const DenseVector<Scalar> column = taylor_features(x.column(t), degree);
    if (t == 0) phi.resize(column.size(), x.cols());
    std::copy(column.begin(), column.end(), &phi(0, t));
  }
  return phi;
}

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

/// The first two rows, with columns shrunk to a norm of at most `radius`.
template <class Scalar>
[[nodiscard]] Dense<Scalar> plane_within(const Dense<Scalar>& x, double radius) {
  const Dense<double> plane = x.part(0, 0, 2, x.cols()).in_double();
  double longest = 0;
  for (Index t = 0; t < x.cols(); ++t) longest = std::max(longest, plane.column(t).norm());
  return (plane * (radius / longest)).template to<Scalar>();
}

template <class Scalar>
void bias_as_gate(Ledger& ledger, const Sequence<Scalar>& x, double m) {
  const auto gate = constant_decay(std::exp(-m));
  const auto biased = [&](Index i, Index j) { return x.q(i).dot(x.k(j)) + m * static_cast<double>(j - i); };
  const auto rows = direct_attention(Exponential{}, gate, x.Q, x.K, x.V);
  const Dense<double> softmax = attend([&](Index i, Index j) { return std::exp(biased(i, j)); }, x.V);
  ledger.holds("AL1",
               row_rule<DefaultNormalization, Exponential>(rows, attention(Exponential{}, gate, x.Q, x.K, x.V), softmax,
                                                           unit_roundoff<Scalar>),
               1, "exp(q·k + m(j - i)) = γ^{i-j} exp(q·k) for j ≤ i with γ = e^{-m}, in units of the row rule",
               "A §A.2, eq. (softmax + ALiBi), \"Note that …\"; B §5, eq. (softmax + ALiBi), \"Note that …\"");
  ledger.control("AL2", -constant_decay(0.2).log_decay(0), 1,
                 "'equivalent to scalar gating': slopes m < 1 reach every gate; γ = .2 asks for m = 1.6, and γ_i(X) "
                 "for no fixed m",
                 "A §A.2, \"We now show that ALiBi is …\"; B §5, \"We now show that ALiBi is …\"");
  const Dense<double> squares = attend([&](Index i, Index j) { return std::pow(biased(i, j), 2); }, x.V);
  const Dense<Scalar> gated = attention(SymmetricPower<2>{}, gate, x.Q, x.K, x.V);
  // The row of the first token is always its value; of the others no weight exceeds 1.
  ledger.control("AL3", (gated.in_double() - squares).largest() / x.V.largest(), 1e-3,
                 "an additive bias inside (·)^p is a gate: only exp turns sums into products",
                 "premise of A §A.2, eq. (softmax)");
}

/// Sym^P(R), dense.
template <int P>
[[nodiscard]] Dense<double> lifted(const Dense<double>& R) {
  return induced<P>(R.plain()).toDenseMatrix();
}

/// S_i = e^{-m} S_{i-1} R̄ + [v_i; 1] φ(k_i)ᵀ with R̄ = diag(1, Sym¹(R), …, Sym⁶(R)), dense and in double, read by
/// φ(q_i).
[[nodiscard]] inline Dense<double> conformal_rnn(const Dense<double>& Q, const Dense<double>& K, const Dense<double>& V,
                                                 const GivenFeatures& taylor_features, const DenseVector<double>& theta,
                                                 double m) {
  const Index D = taylor_features.dimension(Q.rows()), e = V.rows();
  const Dense<double> R = rotation_matrix(theta);
  Dense<double> turn = Dense<double>::identity(D), S = Dense<double>::zero(e + 1, D), Y(e, V.cols());
  Index begin = 1;
  for (const Dense<double>& block : {R, lifted<2>(R), lifted<3>(R), lifted<4>(R), lifted<5>(R), lifted<6>(R)}) {
    for (Index n = 0; n < block.size(); ++n) turn(begin + n % block.rows(), begin + n / block.rows()) = block.data()[n];
    begin += block.rows();
  }
  for (Index i = 0; i < V.cols(); ++i) {
    S = std::exp(-m) * S * turn + extended(V.column(i)) * taylor_features.phi(K.column(i)).transpose();
    const DenseVector<double> sums = S * taylor_features.phi(Q.column(i));
    for (Index r = 0; r < e; ++r) Y(r, i) = sums[r] / sums[e];
  }
  return Y;
}

template <class Scalar>
void softmax_as_recurrence(Ledger& ledger, const Sequence<Scalar>& x, double m) {
  constexpr double radius = 1.2;
  const DenseVector<double> theta = DenseVector<double>::constant(1, 1, 0.3);
  const Dense<Scalar> Q = plane_within(x.Q, radius), K = plane_within(x.K, radius);
  const Dense<double> q = Q.in_double(), k = K.in_double();
  const auto transition = constant_decay(std::exp(-m)) * rotary(theta, Pairing::interleaved);
  const GivenFeatures six{[](const DenseVector<double>& y) { return taylor_features(y, 6); }};
  const auto s = forms(six, transition, Q, K, x.V);
  const auto score = [&](Index i, Index j) {
    const auto apart = static_cast<double>(i - j);
    const double logit = q.column(i).dot(rotation_matrix(-apart * theta) * k.column(j));
    return taylor(logit, 6) * std::exp(-m * apart);
  };
  const double softmax_polynomial = s.disagreement(attend(score, x.V)),
               state = s.disagreement(conformal_rnn(q, k, x.V.in_double(), six, theta, m));
  ledger.holds(
      "AL4", worse(softmax_polynomial, state), turning_bound<Scalar>(6, x.T),
      "softmax with rotary and ALiBi as a conformal recurrence: exact for the Taylor features of degree 6, in "
      "units of the row rule",
      "B §introduction, \"This unification does not only hold …\"; B §4, \"We will show that updating the …\"");

  const Dense<double> phi_q = taylor_features_of_columns(Q, 24).in_double(),
                      phi_k = taylor_features_of_columns(K, 24).in_double(), found = phi_k.transpose() * phi_q;
  Dense<double> exact = k.transpose() * q;
  for (Index n = 0; n < exact.size(); ++n) exact.data()[n] = std::exp(exact.data()[n]);
  // A monomial of degree n is rounded 2n times or less, Σ_n 2n t^n/n! = 2t e^t with t = ‖q‖‖k‖ at most radius²; and D
  // are summed.
  const double t = radius * radius, size = std::exp(t), sum = 2 * std::sqrt(static_cast<double>(phi_q.rows()));
  ledger.holds(
      "AL5", distance(found, exact) / size, (8 * (1 + 2 * t) + sum) * unit_roundoff<Scalar> + taylor_remainder(t, 24),
      "⊕_{n ≤ 24} φ^n/√n! has the inner products exp(q·k); relative to exp(‖q‖ ‖k‖)", "B §introduction, \"Further …\"");

  // Weights off by a factor 1 ± δ move a mean by at most 2δ/(1-δ) max |V|.
  const double delta = taylor_remainder(t, 6);
  const Dense<Scalar> true_softmax = attention(Exponential{}, transition, Q, K, x.V);
  ledger.holds("AL6", distance(s.outputs[1].in_double(), true_softmax.in_double()) / s.rows.largest_value,
               2 * delta / (1 - delta), "truncation of AL4 against true softmax attention, in units of max |V|",
               "B §introduction, \"This unification does not only hold …\"");
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

}  // namespace SYMPOW_NAMESPACE::verify
