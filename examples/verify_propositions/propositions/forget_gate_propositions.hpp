// What a forget gate does to a recurrence, to its norm, and as a distance: propositions 3.L*, 3.G* and 3.M*.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "propositions/duality.hpp"
#include "propositions/largest.hpp"

namespace SYMPOW_NAMESPACE::verify {
namespace detail {

template <class Scalar>
void linear_recurrences(Ledger& ledger, const DualityInput<Scalar>& in, Random& random) {
  constexpr Index T = DualityInput<Scalar>::T, d = DualityInput<Scalar>::d;
  const Tokens<double> dense = in.tokens.dense();
  const auto worst = [&](const LinearForms<Scalar>& forms, const DenseGates& gates, const Dense<double>& scores) {
    return worse(forms.disagreement(gated_recurrence(gates, dense.Q, dense.K, dense.V)),
                 forms.disagreement(dense.V * scores));
  };
  const DenseGates open = scalar_gates(DenseVector<double>::zero(T), d);
  const Dense<double> logits = dense.logits();
  const Dense<double> masked = causal_matrix(T, [&](Index i, Index j) { return logits(j, i); }, 0);
  ledger.holds("3.L1", worst(linear_forms(systems::linear_attention(), open, in.tokens), open, masked), 1,
               "S_t = S_{t-1} + v_t k_tᵀ, o_t = S_t q_t is (Q Kᵀ ⊙ M) V with M in {0, 1}, printed (0, 1); in units of "
               "the row rule",
               "D §Linear Attention, eq. (Matrix Form), eq. (Recurrent Form), \"Examining the recurrent form of linear "
               "…\"; D §1, \"We begin with the simplest case …\"");

  std::vector<Dense<double>> matrices;  // ‖A‖ < 1, no two of which commute
  for (Index t = 0; t < T; ++t) {
    DenseVector<double> shrink(d);
    for (double& factor : shrink) factor = random.uniform(.5, 1);
    const Dense<double> rotation = random.rotation(d);
    matrices.push_back(rotation * shrink.diagonal_matrix());
  }
  const DenseGates gates(std::move(matrices));
  const auto forms = linear_forms(systems::System{Linear{}, gates}, gates, in.tokens);
  ledger.holds("3.L2", worst(forms, gates, ascending_products(gates, dense.Q, dense.K)), 1,
               "unrolled: o_t = Σ_j (k_jᵀ A_{j+1} A_{j+2} … A_t q_t) v_j for dense gates, in ascending order; in units "
               "of the row rule",
               "D §Forget Gate as Positional Embedding, eq. (Unrolled LinAtt)");
  ledger.control("3.L2r", forms.departure(dense.V * descending_products(gates, dense.Q, dense.K)), visible_error,
                 "the product in descending order, A_t … A_{j+1}; in units of max|V|",
                 "D §Forget Gate as Positional Embedding, eq. (Unrolled LinAtt)");
}

/// 3.G1: powers of a matrix with a known eigenvector.
template <class Scalar>
void powers_of_a_gate(Ledger& ledger, Random& random) {
  constexpr Index d = 4;
  constexpr int power = 7;
  double error = 0;
  for (const double lambda : {0.5, 1.0, -1.5, 2.0}) {
    const DenseVector<Scalar> v = DenseVector<Scalar>(random.vector<Scalar>(d)).normalized();
    Dense<Scalar> A = random.matrix<Scalar>(d, d);
    A /= Scalar(4);
    A += (lambda * v - A * v) * v.transpose() / v.dot(v);
    DenseVector<Scalar> image = v;
    for (int n = 0; n < power; ++n) image = A * image;
    const DenseVector<double> expected = std::pow(lambda, power) * v.in_double();
    error = worse(error, distance(image.in_double(), expected) / std::pow(A.norm(), power));
  }
  // A v is off by 2 d + 5 roundings of ‖A‖ as A is built, and by d at every application.
  ledger.holds("3.G1", error, power * (3 * d + 5) * unit_roundoff<Scalar>,
               "A^k v = λ^k v, growth if |λ| > 1: k = 7 and λ from ½ to 2, relative to ‖A‖^k",
               "D §Forget Gate as Positional Embedding, box, \"Why Eigenvalues of the Forget Gate …\"");
}

/// 3.G2 and 3.G3: eigenvalues do not bound a product; norms do.
template <class Scalar>
void norms_of_gates(Ledger& ledger, const DualityInput<Scalar>& in, Random& random) {
  constexpr Index d = DualityInput<Scalar>::d, n = 12;
  Dense<double> nilpotent = Dense<double>::zero(2, 2);
  nilpotent(0, 1) = 2;
  const Dense<double> grown = nilpotent * nilpotent.transpose();
  const auto delta_net = systems::delta_net(in.unit_keys, in.beta);
  const auto complex_gate = systems::complex_gate(in.theta, Pairing::interleaved);
  const auto channels = systems::gla(systems::gla_log_gates(in.channel_projection * in.x, in.tau));
  Dense<double> contractions = Dense<double>::identity(d);
  for (Index t = 0; t < n; ++t) {
    const Dense<double> A = random.matrix(d, d);
    contractions = contractions * A * (random.uniform(.5, 1) / A.spectral_norm());
  }
  double norm = contractions.spectral_norm();
  norm = worse(norm, product_of_gates(delta_net.transition, n, d).spectral_norm());
  norm = worse(norm, product_of_gates(complex_gate.transition, n, d).spectral_norm());
  norm = worse(norm, product_of_gates(channels.transition, n, d).spectral_norm());
  norm = worse(norm, product_of_gates(in.scalar_gate(), n, d).spectral_norm());
  // n products of d × d matrices of norm 1, d + 2 roundings of each of their d² entries, and the norm itself.
  const double rounding = static_cast<double>((n + 1) * d * (d + 2)) * unit_roundoff<double>;
  ledger.erratum("3.G2", grown.spectral_norm() - 1, rounding,
                 "gates with |λ| ≤ 1 do not expand and their products neither: A = [0, 2; 0, 0] and Aᵀ, all of whose "
                 "eigenvalues are 0, have the product diag(4, 0); residual: its norm, less 1",
                 "D §Forget Gate as Positional Embedding, box, \"If instead …\"; D §Forget Gate as Positional "
                 "Embedding, \"Considering each A_s has eigenvalues …\"",
                 "gates of norm ≤ 1 do: dense ones, and those of GLA, Mamba-2, the complex gate and DeltaNet", norm - 1,
                 rounding);

  // I x = x; a rotation keeps every length; I - β k kᵀ keeps what is orthogonal to k.
  const DenseVector<double> k = in.unit_keys.column(0).in_double(), x = random.vector(d);
  const DenseVector<double> across = x - k * (k.dot(x) / k.dot(k));
  const Dense<double> gates[] = {systems::linear_attention().transition.key_matrix(0, d),
                                 complex_gate.transition.key_matrix(0, d), delta_net.transition.key_matrix(0, d)};
  int kept = 0;
  double largest = 0;
  for (const Dense<double>& A : gates) {
    kept += (A * across).norm() >= across.norm() * (1 - rounding) ? 1 : 0;
    largest = worse(largest, A.spectral_norm());
  }
  ledger.erratum("3.G3", kept, 0,
                 "gates have eigenvalues of magnitude less than 1; residual: of the gates 1, e^{iΩ} and I - β k kᵀ of "
                 "§1, §4 and §5 those that keep the length of a vector",
                 "D §Forget Gate as Positional Embedding, \"Soon after the introduction of linear …\"",
                 "≤ 1, as the box says; residual: the largest norm, less 1", largest - 1, rounding);
}

/// exp of the symmetric [a, b; b, c].
[[nodiscard]] inline Dense<double> symmetric_exponential(double a, double b, double c) {
  const double mean = (a + c) / 2, half = (a - c) / 2, s = std::hypot(half, b);
  const double even = std::exp(mean) * std::cosh(s), odd = s > 0 ? std::exp(mean) * std::sinh(s) / s : std::exp(mean);
  Dense<double> result(2, 2);
  result << even + odd * half, odd * b, odd * b, even - odd * half;
  return result;
}

/// 3.G4 to 3.G4c: which gates have a logarithm.
template <class Scalar>
void gates_in_log_space(Ledger& ledger, const DualityInput<Scalar>& in) {
  constexpr Index d = DualityInput<Scalar>::d, T = DualityInput<Scalar>::T;
  // exp(-D_1) = diag(½, 1), and D_2 the same in axes turned by 45°: their sum is log 2 [3/2, ½; ½, ½].
  const double l = std::log(2);
  const Dense<double> together = symmetric_exponential(-1.5 * l, -.5 * l, -.5 * l),
                      product = symmetric_exponential(-l, 0, 0) * symmetric_exponential(-.5 * l, -.5 * l, -.5 * l);
  const auto gla = channel_decay(systems::gla_log_gates(in.channel_projection * in.x, in.tau));
  double error = 0;
  for (Index channel = 0; channel < d; ++channel) {
    const Dense<double> D = gate_distances(gla, T, channel);
    for (Index i = 0; i < T; ++i) {
      double factors = 1;
      for (Index j = i; j >= 0; factors *= gla.key_matrix(j, d)(channel, channel), --j)
        error = worse(error, std::abs(std::exp(-D(j, i)) - factors));
    }
  }
  // The sum is off by T u D, its exponential by at most T u D e^{-D} ≤ T u / 2; a product of T by 2 T u.
  ledger.erratum("3.G4", (product - together).spectral_norm(), 16 * unit_roundoff<double>,
                 "Π A_s = exp(-Σ D_s) with D_s ⪰ 0: two positive definite contractions of the plane that do not "
                 "commute; residual: the norm of the difference",
                 "D §Forget Gate as Positional Embedding, \"Considering each A_s has eigenvalues …\"",
                 "it holds where the A_s commute, here GLA's: exp of minus its distances by channel", error,
                 static_cast<double>(3 * T) * unit_roundoff<double>);

  const auto one = [](double x) { return DenseVector<double>::constant(1, 1, x); };
  const Dense<Scalar> K = in.tokens.K.part(0, 0, d, 1);
  const DenseVector<double> k = K.column(0).in_double();
  const Dense<double> projection = householder(K, one(1 / k.dot(k))).key_matrix(0, d);
  // k is sent to 0 up to some d roundings.
  ledger.control(
      "3.G4d", 1 / std::max((projection * k).norm() / k.norm(), 1e-16), 1e12,
      "scope: DeltaNet's gate with β‖k‖² = 1 is exp(-D) for a finite D; residual: 1 over its smallest "
      "eigenvalue",
      "D §Forget Gate as Positional Embedding, \"Considering each A_s has eigenvalues …\"; D §5, \"Specifically …\"");
  const Dense<double> turn = systems::complex_gate(one(.7), Pairing::interleaved).transition.key_matrix(0, 2);
  ledger.control("3.G4c", std::abs(turn(0, 1) - turn(1, 0)) / 2, 4 * unit_roundoff<double>,
                 "scope: the complex gate is exp(-D) for D ⪰ 0, which would make it symmetric; residual: half of what "
                 "its corners differ by at Ω = .7",
                 "D §Forget Gate as Positional Embedding, \"Considering each A_s has eigenvalues …\"; D §4, \"We then "
                 "choose a diagonal forget …\"");
}

/// 3.M1 to 3.M4: the distances of scalar gates, and those by channel, which are the diagonals of D(j, t).
template <class Scalar>
void distances(Ledger& ledger, const DualityInput<Scalar>& in) {
  constexpr Index d = DualityInput<Scalar>::d, T = DualityInput<Scalar>::T;
  const auto channels = channel_decay(systems::gla_log_gates(in.channel_projection * in.x, in.tau));
  std::vector<Dense<double>> all = {gate_distances(in.scalar_gate(), T)};
  for (Index channel = 0; channel < d; ++channel) all.push_back(gate_distances(channels, T, channel));

  const auto at_distance_0 = [](const Dense<double>& D) {
    double pairs = 0;
    for (Index t = 0; t < T; ++t)
      for (Index j = 0; j < t; ++j) pairs += D(j, t) == 0 ? 1 : 0;
    return pairs;
  };
  Largest below, same, sum;
  double pairs = 0;
  for (const Dense<double>& D : all) {
    pairs += at_distance_0(D);
    for (Index t = 0; t < T; ++t) {
      same.add(std::abs(D(t, t)));
      for (Index j = 0; j <= t; ++j) below.add(-D(j, t));
      for (Index j = 0; j < t; ++j)
        for (Index k = j + 1; k < t; ++k) sum.add(std::abs(D(j, t) - D(j, k) - D(k, t)) / D(j, t));
    }
  }
  ledger.holds(
      "3.M1", below.value(), 0, "D(j, t) ⪰ 0, the distances of scalar gates and of those by channel",
      "D §Forget Gate as Positional Embedding, box, \"Forget Gate in Log-Space is a …\", \"Non-negativity: …\"");
  ledger.holds("3.M2", same.value(), 0, "D(t, t) = 0",
               "D §Forget Gate as Positional Embedding, box, \"Forget Gate in Log-Space is a …\", \"Identity of "
               "Indiscernibles: …\"");
  ledger.erratum("3.M3", at_distance_0(gate_distances(systems::linear_attention().transition, T)), 0,
                 "D(j, t) = 0 implies j = t; residual: pairs of different tokens at distance 0 under A_s = 1, the "
                 "gate of §1",
                 "D §Forget Gate as Positional Embedding, box, \"Forget Gate in Log-Space is a …\", \"Identity of "
                 "Indiscernibles: …\"",
                 "it does if every gate is below 1; residual: the same for gates σ(·)", pairs, 0);
  ledger.holds(
      "3.M4", sum.value(), static_cast<double>(2 * T) * unit_roundoff<double>,
      "the triangle inequality, an equality: D(j, t) = D(j, k) + D(k, t), relative",
      "D §Forget Gate as Positional Embedding, box, \"Forget Gate in Log-Space is a …\", \"Triangle Inequality: …\"");
}

}  // namespace detail

/// Every statement on forget gates before a particular one. Source: On the Legacy of Linear Transformers in Positional
/// Embeddings, Linear Transformers (An Overview).
template <class Scalar>
void forget_gate_propositions(Ledger& ledger, std::uint64_t seed) {
  const detail::DualityInput<Scalar> in(seed);
  Random random(seed + 1);
  detail::linear_recurrences(ledger, in, random);
  detail::powers_of_a_gate<Scalar>(ledger, random);
  detail::norms_of_gates(ledger, in, random);
  detail::gates_in_log_space(ledger, in);
  detail::distances(ledger, in);
}

}  // namespace SYMPOW_NAMESPACE::verify
