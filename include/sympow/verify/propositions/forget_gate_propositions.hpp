// What a forget gate does to a recurrence, to its norm, and as a distance: propositions 3.L*, 3.G* and 3.M*.
#pragma once

#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include <sympow/verify/propositions/duality.hpp>
#include <sympow/verify/propositions/largest.hpp>
#include <sympow/verify/propositions/spectral_norm.hpp>

namespace sympow::verify {
namespace detail {

template <class Scalar>
void linear_recurrences(Ledger& ledger, const DualityInput<Scalar>& in, Random& random) {
  constexpr Index T = DualityInput<Scalar>::T, d = DualityInput<Scalar>::d;
  const Tokens<double> dense = in.tokens.dense();
  const auto worst = [&](const LinearForms<Scalar>& forms, const DenseGates& gates, const Matrix<double>& scores) {
    return worse(forms.disagreement(gated_recurrence(gates, dense.Q, dense.K, dense.V)),
                 forms.disagreement(dense.V * scores));
  };
  const DenseGates open = scalar_gates(Eigen::VectorXd::Zero(T), d);
  const Matrix<double> masked = dense.logits().triangularView<Eigen::Upper>();
  ledger.holds("3.L1", worst(linear_forms(systems::linear_attention(), open, in.tokens), open, masked), 1,
               "S_t = S_{t-1} + v_t k_tᵀ, o_t = S_t q_t is (Q Kᵀ ⊙ M) V with M in {0, 1}, printed (0, 1); in units of "
               "the row rule",
               "D Linear Attention, §1");

  std::vector<Matrix<double>> matrices;  // ‖A‖ < 1, no two of which commute
  for (Index t = 0; t < T; ++t) {
    const Eigen::VectorXd shrink = Eigen::VectorXd::NullaryExpr(d, [&] { return random.uniform(.5, 1); });
    matrices.push_back(random.rotation(d) * shrink.asDiagonal());
  }
  const DenseGates gates(std::move(matrices));
  const auto forms = linear_forms(systems::System{Linear{}, gates}, gates, in.tokens);
  ledger.holds("3.L2", worst(forms, gates, ascending_products(gates, dense.Q, dense.K)), 1,
               "unrolled: o_t = Σ_j (k_jᵀ A_{j+1} A_{j+2} … A_t q_t) v_j for dense gates, in ascending order; in units "
               "of the row rule",
               "D Unrolled LinAtt");
  ledger.control("3.L2r", forms.departure(dense.V * descending_products(gates, dense.Q, dense.K)), visible_error,
                 "the product in descending order, A_t … A_{j+1}; in units of max|V|", "D Unrolled LinAtt");
}

/// 3.G1: powers of a matrix with a known eigenvector.
template <class Scalar>
void powers_of_a_gate(Ledger& ledger, Random& random) {
  constexpr Index d = 4;
  constexpr int power = 7;
  double error = 0;
  for (const double lambda : {0.5, 1.0, -1.5, 2.0}) {
    const Vector<Scalar> v = random.vector<Scalar>(d).normalized();
    Matrix<Scalar> A = random.matrix<Scalar>(d, d) / Scalar(4);
    const Vector<Scalar> correction = static_cast<Scalar>(lambda) * v - A * v;
    A += correction * v.transpose() / v.squaredNorm();
    Vector<Scalar> image = v;
    for (int n = 0; n < power; ++n) image = (A * image).eval();
    const Eigen::VectorXd expected = std::pow(lambda, power) * v.template cast<double>();
    error = worse(error, distance(in_double(image), expected) / std::pow(static_cast<double>(A.norm()), power));
  }
  // A v is off by 2 d + 5 roundings of ‖A‖ as A is built, and by d at every application.
  ledger.holds("3.G1", error, power * (3 * d + 5) * unit_roundoff<Scalar>,
               "A^k v = λ^k v, growth if |λ| > 1: k = 7 and λ from ½ to 2, relative to ‖A‖^k",
               "D box Why Eigenvalues of the Forget Gate Must Be ≤ 1");
}

/// 3.G2 and 3.G3: eigenvalues do not bound a product; norms do.
template <class Scalar>
void norms_of_gates(Ledger& ledger, const DualityInput<Scalar>& in, Random& random) {
  constexpr Index d = DualityInput<Scalar>::d, n = 12;
  Matrix<double> nilpotent = Matrix<double>::Zero(2, 2);
  nilpotent(0, 1) = 2;
  const Matrix<double> transposed = nilpotent.transpose(), grown = nilpotent * transposed;
  const auto delta_net = systems::delta_net(in.unit_keys, in.beta);
  const auto complex_gate = systems::complex_gate(in.theta);
  const auto channels = systems::gla(systems::gla_log_gates(in.channel_projection * in.x, in.tau));
  Matrix<double> contractions = Matrix<double>::Identity(d, d);
  for (Index t = 0; t < n; ++t) {
    const Matrix<double> A = random.matrix(d, d);
    contractions = (contractions * A * (random.uniform(.5, 1) / spectral_norm(A))).eval();
  }
  double norm = spectral_norm(contractions);
  norm = worse(norm, spectral_norm(product_of_gates(delta_net.transition, n, d)));
  norm = worse(norm, spectral_norm(product_of_gates(complex_gate.transition, n, d)));
  norm = worse(norm, spectral_norm(product_of_gates(channels.transition, n, d)));
  norm = worse(norm, spectral_norm(product_of_gates(in.scalar_gate(), n, d)));
  // n products of d × d matrices of norm 1, d + 2 roundings of each of their d² entries, and the norm itself.
  const double rounding = static_cast<double>((n + 1) * d * (d + 2)) * unit_roundoff<double>;
  ledger.erratum("3.G2", spectral_norm(grown) - 1, rounding,
                 "gates with |λ| ≤ 1 do not expand and their products neither: A = [0, 2; 0, 0] and Aᵀ, all of whose "
                 "eigenvalues are 0, have the product diag(4, 0); residual: its norm, less 1",
                 "D box Why Eigenvalues, log-space",
                 "gates of norm ≤ 1 do: dense ones, and those of GLA, Mamba-2, the complex gate and DeltaNet", norm - 1,
                 rounding);

  // I x = x; a rotation keeps every length; I - β k kᵀ keeps what is orthogonal to k.
  const Eigen::VectorXd k = in.unit_keys.col(0).template cast<double>();
  const Eigen::VectorXd random_vector = random.vector(d);
  const Eigen::VectorXd across = random_vector - k * (k.dot(random_vector) / k.squaredNorm());
  const Matrix<double> gates[] = {systems::linear_attention().transition.key_matrix(0, d),
                                  complex_gate.transition.key_matrix(0, d), delta_net.transition.key_matrix(0, d)};
  int kept = 0;
  double largest = 0;
  for (const Matrix<double>& A : gates) {
    const Eigen::VectorXd image = A * across;
    kept += image.norm() >= across.norm() * (1 - rounding) ? 1 : 0;
    largest = worse(largest, spectral_norm(A));
  }
  ledger.erratum("3.G3", kept, 0,
                 "gates have eigenvalues of magnitude less than 1; residual: of the gates 1, e^{iΩ} and I - β k kᵀ of "
                 "§1, §4 and §5 those that keep the length of a vector",
                 "D Forget Gate as Positional Embedding", "≤ 1, as the box says; residual: the largest norm, less 1",
                 largest - 1, rounding);
}

/// exp of the symmetric [a, b; b, c].
[[nodiscard]] inline Matrix<double> symmetric_exponential(double a, double b, double c) {
  const double mean = (a + c) / 2, half = (a - c) / 2, s = std::hypot(half, b);
  const double even = std::exp(mean) * std::cosh(s), odd = s > 0 ? std::exp(mean) * std::sinh(s) / s : std::exp(mean);
  Matrix<double> result(2, 2);
  result << even + odd * half, odd * b, odd * b, even - odd * half;
  return result;
}

/// 3.G4 to 3.G4c: which gates have a logarithm.
template <class Scalar>
void gates_in_log_space(Ledger& ledger, const DualityInput<Scalar>& in) {
  constexpr Index d = DualityInput<Scalar>::d, T = DualityInput<Scalar>::T;
  // exp(-D_1) = diag(½, 1), and D_2 the same in axes turned by 45°: their sum is log 2 [3/2, ½; ½, ½].
  const double l = std::log(2);
  const Matrix<double> together = symmetric_exponential(-1.5 * l, -.5 * l, -.5 * l),
                       product = symmetric_exponential(-l, 0, 0) * symmetric_exponential(-.5 * l, -.5 * l, -.5 * l);
  const auto gla = channel_decay(systems::gla_log_gates(in.channel_projection * in.x, in.tau));
  double error = 0;
  for (Index channel = 0; channel < d; ++channel) {
    const Matrix<double> D = gate_distances(gla, T, channel);
    for (Index i = 0; i < T; ++i) {
      double factors = 1;
      for (Index j = i; j >= 0; factors *= gla.key_matrix(j, d)(channel, channel), --j)
        error = worse(error, std::abs(std::exp(-D(j, i)) - factors));
    }
  }
  // The sum is off by T u D, its exponential by at most T u D e^{-D} ≤ T u / 2; a product of T by 2 T u.
  ledger.erratum("3.G4", spectral_norm<double>(product - together), 16 * unit_roundoff<double>,
                 "Π A_s = exp(-Σ D_s) with D_s ⪰ 0: two positive definite contractions of the plane that do not "
                 "commute; residual: the norm of the difference",
                 "D log-space", "it holds where the A_s commute, here GLA's: exp of minus its distances by channel",
                 error, static_cast<double>(3 * T) * unit_roundoff<double>);

  const Matrix<Scalar> k = in.tokens.K.leftCols(1);
  const double squared = in_double(k).squaredNorm();
  const Matrix<double> projection = householder(k, Eigen::VectorXd::Constant(1, 1 / squared)).key_matrix(0, d);
  const Eigen::VectorXd image = projection * in_double(k).col(0);
  // k is sent to 0 up to some d roundings.
  ledger.control("3.G4d", 1 / std::max(image.norm() / std::sqrt(squared), 1e-16), 1e12,
                 "scope: DeltaNet's gate with β‖k‖² = 1 is exp(-D) for a finite D; residual: 1 over its smallest "
                 "eigenvalue",
                 "D log-space, §5");
  const Matrix<double> turn = systems::complex_gate(Eigen::VectorXd::Constant(1, .7)).transition.key_matrix(0, 2);
  ledger.control("3.G4c", std::abs(turn(0, 1) - turn(1, 0)) / 2, 4 * unit_roundoff<double>,
                 "scope: the complex gate is exp(-D) for D ⪰ 0, which would make it symmetric; residual: half of what "
                 "its corners differ by at Ω = .7",
                 "D log-space, §4");
}

/// 3.M1 to 3.M4: the distances of scalar gates, and those by channel, which are the diagonals of D(j, t).
template <class Scalar>
void distances(Ledger& ledger, const DualityInput<Scalar>& in) {
  constexpr Index d = DualityInput<Scalar>::d, T = DualityInput<Scalar>::T;
  const auto channels = channel_decay(systems::gla_log_gates(in.channel_projection * in.x, in.tau));
  std::vector<Matrix<double>> all = {gate_distances(in.scalar_gate(), T)};
  for (Index channel = 0; channel < d; ++channel) all.push_back(gate_distances(channels, T, channel));

  const auto at_distance_0 = [](const Matrix<double>& D) {
    Index pairs = 0;
    for (Index t = 0; t < T; ++t) pairs += (D.col(t).head(t).array() == 0).count();
    return static_cast<double>(pairs);
  };
  Largest below, same, sum;
  double pairs = 0;
  for (const Matrix<double>& D : all) {
    pairs += at_distance_0(D);
    for (Index t = 0; t < T; ++t) {
      same.add(std::abs(D(t, t)));
      for (Index j = 0; j <= t; ++j) below.add(-D(j, t));
      for (Index j = 0; j < t; ++j)
        for (Index k = j + 1; k < t; ++k) sum.add(std::abs(D(j, t) - D(j, k) - D(k, t)) / D(j, t));
    }
  }
  ledger.holds("3.M1", below.value(), 0, "D(j, t) ⪰ 0, the distances of scalar gates and of those by channel",
               "D box Forget Gate in Log-Space is a Distance Metric");
  ledger.holds("3.M2", same.value(), 0, "D(t, t) = 0", "D box Forget Gate in Log-Space is a Distance Metric");
  ledger.erratum("3.M3", at_distance_0(gate_distances(systems::linear_attention().transition, T)), 0,
                 "D(j, t) = 0 implies j = t; residual: pairs of different tokens at distance 0 under A_s = 1, the "
                 "gate of §1",
                 "D box Forget Gate in Log-Space is a Distance Metric",
                 "it does if every gate is below 1; residual: the same for gates σ(·)", pairs, 0);
  ledger.holds("3.M4", sum.value(), static_cast<double>(2 * T) * unit_roundoff<double>,
               "the triangle inequality, an equality: D(j, t) = D(j, k) + D(k, t), relative",
               "D box Forget Gate in Log-Space is a Distance Metric");
}

}  // namespace detail

/// Every statement on forget gates before a particular one. Source: On the Legacy of Linear Transformers in Positional Embeddings, Linear
/// Transformers (An Overview).
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

}  // namespace sympow::verify
