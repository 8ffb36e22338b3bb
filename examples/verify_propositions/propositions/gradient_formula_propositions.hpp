// Gradients of single formulas: the embedding, turns of it, rotations by their parameters, Householder chains, and what
// becomes of them where something is 0.
#pragma once

#include <cmath>
#include <complex>
#include <string>
#include <vector>

#include <sympow/verify/proposition.hpp>
#include "propositions/chunked_gradients.hpp"
#include "propositions/dense_rotations.hpp"
#include "propositions/largest.hpp"

namespace SYMPOW_NAMESPACE::verify {
namespace detail {

/// A matrix of the scalar in double.
template <class Scalar>
[[nodiscard]] Dense<double> in_double_of(const Matrix<Scalar>& x) {
  return Dense<Scalar>(x).in_double();
}

/// V and L: Dφ^P.
template <class Scalar>
void derivative_of_powers(Ledger& ledger, Random& random) {
  constexpr double u = unit_roundoff<Scalar>;
  Largest nodes, euler, norm;
  for (const auto& [d, P] : {std::pair<Index, int>{6, 2}, {5, 3}, {6, 4}, {3, 8}}) {
    const Index D = symmetric_dimension(d, P);
    const DenseVector<Scalar> x = random.vector<Scalar>(d), dy = random.vector<Scalar>(D);
    DenseVector<Scalar> dx = DenseVector<Scalar>::zero(d);
    const PrefixWalk<Scalar> walk(P, x, dy, dx);
    const Embedded at(dense_symmetric_power(d, P), x.plain().template cast<Wide>());
    Largest apart;
    Wide along = 0, product = 0, size = 0;
    for (Index c = 0; c < d; ++c) {
      Wide exact = 0, absolute = 0;
      for (Index n = 0; n < D; ++n) {
        exact += at.jacobian(n, c) * static_cast<Wide>(dy[n]);
        absolute += std::abs(at.jacobian(n, c) * static_cast<Wide>(dy[n]));
      }
      apart.add(static_cast<double>(std::abs(static_cast<Wide>(dx[c]) - exact) / absolute));
      along += static_cast<Wide>(x[c]) * static_cast<Wide>(dx[c]);
    }
    for (Index n = 0; n < D; ++n) {
      product += static_cast<Wide>(P) * at.phi[n] * static_cast<Wide>(dy[n]);
      size += static_cast<Wide>(P) * std::abs(at.phi[n] * static_cast<Wide>(dy[n]));
    }
    // P factors and square roots in a path, and a sum of up to d terms at each of its nodes.
    const double roundings = 4 * P + static_cast<double>(d * P) + static_cast<double>(D) / static_cast<double>(d);
    ledger.holds("grad.V.p" + std::to_string(P), apart.value(), roundings * u,
                 "Dφ(x)ᵀz by one walk over the prefixes is that of the definition; relative to |Dφ|ᵀ|z|",
                 "(extension)");
    nodes.add(std::abs(static_cast<double>(walk.multiply_adds() - 2 * (symmetric_dimension(d + 1, P) - 1))));
    euler.add(static_cast<double>(std::abs(along - product) / size) / roundings);
    norm.add(std::abs(Dense<double>(Matrix<double>(at.jacobian.template cast<double>())).spectral_norm() /
                          (P * std::pow(x.in_double().norm(), P - 1)) -
                      1));
  }
  ledger.holds("grad.V.count", nodes.value(), 0, "it takes 2 (C(d+P, P) - 1) multiply-adds", "(extension)");
  ledger.holds("grad.V.euler", euler.value(), u, "Euler: x·Dφ(x)ᵀz = P φ(x)·z; relative to P Σ|φ z| and the roundings",
               "(extension)");
  ledger.holds("grad.V.norm", norm.value(), 64 * unit_roundoff<double>,
               "‖Dφ(x)‖ = P ‖x‖^{P-1}: φ loses nothing beyond P on the way back", "(extension)");

  for (const auto& [d, P] : {std::pair<Index, int>{4, 2}, {4, 3}, {6, 4}}) {
    const Vector<Wide> x = random.vector<Scalar>(d).template cast<Wide>();
    const Embedded at(dense_symmetric_power(d, P), x);
    Largest apart;
    Index most = 0;
    for (Index plane = 0; plane < d / 2; ++plane) {
      Vector<Wide> turned = Vector<Wide>::Zero(d), found = Vector<Wide>::Zero(at.phi.size());
      turned[2 * plane] = -x[2 * plane + 1], turned[2 * plane + 1] = x[2 * plane];
      Dense<double> L = Dense<double>::zero(found.size(), found.size());
      for (const auto& [u_, row, column, value] : plane_entries(d, P))
        if (u_ == plane) found[row] += static_cast<Wide>(value) * at.phi[column], L(row, column) += value;
      apart.add(static_cast<double>((found - at.jacobian * turned).cwiseAbs().maxCoeff() / at.phi.norm()));
      apart.add((L + L.transpose()).largest());
      for (Index row = 0; row < found.size(); ++row)
        most = std::max<Index>(most, (L.plain().row(row).array() != 0).count());
    }
    ledger.holds("grad.L.p" + std::to_string(P), apart.value(), 4 * P * unit_roundoff<double>,
                 "L_u φ(x) = Dφ(x) J_u x with (L_u)_αβ = ∓√(n_lo (n_up + 1)), skew; relative to ‖φ‖", "(extension)");
    ledger.holds("grad.L.count.p" + std::to_string(P), static_cast<double>(most), 2,
                 "L_u has two entries a row at most; residual: their number", "(extension)");
  }
}

/// O1: (I - S)(I + S)⁻¹ x.
template <class Scalar>
void derivative_of_cayley(Ledger& ledger, Random& random) {
  constexpr Index d = 6;
  using M = Dense<double>;
  const M any = in_double_of(random.matrix<Scalar>(d, d)), S = any - any.transpose(), I = M::identity(d);
  const M x = in_double_of(random.matrix<Scalar>(d, 1)), y = in_double_of(random.matrix<Scalar>(d, 1));
  const M w = (I - S).solve(y), z = (I + S).solve(x), inverse = (I + S).inverse();
  double error = (2. * w - y - dense_cayley(S).transpose() * y).largest() / y.norm();
  for (Index a = 0; a < d; ++a)
    for (Index b = 0; b < d; ++b) {  // by the product rule, with d(I + S)⁻¹ = -(I + S)⁻¹ E (I + S)⁻¹
      M E = M::zero(d, d);
      E(a, b) = 1;
      const double slope = y.dot(-E * z - (I - S) * (inverse * (E * z)));
      error = std::max(error, std::abs(slope + 2 * w(a, 0) * z(b, 0)) / (y.norm() * x.norm()));
    }
  // ‖(I ± S)⁻¹‖ ≤ 1 for skew S: a solve is off by some d² u ‖I + S‖.
  ledger.holds(
      "grad.O1", error, 8. * d * d * (1 + S.norm()) * unit_roundoff<double>,
      "Cayley, P = (I - S)(I + S)⁻¹: dx = 2w - dy, dS = -2 w zᵀ with w = (I - S)⁻¹dy, z = (I + S)⁻¹x; relative "
      "to ‖dy‖ ‖x‖",
      "(extension)");
}

/// O2: exp Σ r_k L_k of commuting generators, by their joint eigenvectors.
template <class Scalar>
void derivative_of_exponentials(Ledger& ledger, Random& random) {
  constexpr Index d = 7, m = 3, tokens = 4;
  using M = Dense<double>;
  using Complex = std::complex<double>;
  Matrix<double> lambda = in_double_of(random.matrix<Scalar>(2, m)).plain();
  lambda.col(1) = lambda.col(0);  // planes that turn alike, and a coordinate that nothing turns
  const M U = random.rotation<double>(d);
  std::vector<M> L(2, M::zero(d, d));
  for (std::size_t k = 0; k < 2; ++k) {
    for (Index u = 0; u < m; ++u) {
      L[k](2 * u + 1, 2 * u) = lambda(static_cast<Index>(k), u);
      L[k](2 * u, 2 * u + 1) = -L[k](2 * u + 1, 2 * u);
    }
    L[k] = U * L[k] * U.transpose();
  }
  Eigen::MatrixXcd W(d, d), frequencies = Eigen::MatrixXcd::Zero(2, d);
  for (Index u = 0; u < m; ++u)
    for (const Index sign : {1, -1}) {
      const Index column = 2 * u + (sign > 0 ? 0 : 1);
      for (Index c = 0; c < d; ++c)
        W(c, column) = Complex(U(c, 2 * u), -static_cast<double>(sign) * U(c, 2 * u + 1)) / std::sqrt(2.);
      for (Index k = 0; k < 2; ++k) frequencies(k, column) = static_cast<double>(sign) * lambda(k, u);
    }
  for (Index c = 0; c < d; ++c) W(c, d - 1) = U(c, d - 1);
  std::vector<M> expected(2, M::zero(d, d));
  std::vector<Eigen::MatrixXcd> inner_sums(2, Eigen::MatrixXcd::Zero(d, d));
  double size = 0;
  for (Index i = 0; i < tokens; ++i) {
    const M dR = in_double_of(random.matrix<Scalar>(d, d)), r = in_double_of(random.matrix<Scalar>(2, 1));
    const M A = r(0, 0) * L[0] + r(1, 0) * L[1];
    size += dR.norm() * r.norm();
    for (Index a = 0; a < d; ++a)
      for (Index b = 0; b < d; ++b) {  // the derivative along E stands beside e^A in the exponential of [A E; 0 A]
        M pair = M::zero(2 * d, 2 * d);
        pair.set_part(0, 0, A), pair.set_part(d, d, A);
        pair(a, d + b) = 1;
        const double slope = dR.dot(exponential(pair).part(0, d, d, d));
        for (std::size_t k = 0; k < 2; ++k) expected[k](a, b) += r(static_cast<Index>(k), 0) * slope;
      }
    Eigen::MatrixXcd projected = W.adjoint() * dR.plain().cast<Complex>() * W;
    for (Index a = 0; a < d; ++a)
      for (Index b = 0; b < d; ++b) {
        const auto omega = [&](Index n) { return (r(0, 0) * frequencies(0, n) + r(1, 0) * frequencies(1, n)).real(); };
        const double half = (omega(a) - omega(b)) / 2, mean = (omega(a) + omega(b)) / 2;
        projected(a, b) *= std::polar(half == 0 ? 1 : std::sin(half) / half, -mean);
      }
    for (std::size_t k = 0; k < 2; ++k) inner_sums[k] += r(static_cast<Index>(k), 0) * projected;
  }
  double error = 0;
  for (std::size_t k = 0; k < 2; ++k) {
    const M found = Matrix<double>((W * inner_sums[k] * W.adjoint()).real());
    error = std::max(error, (found - expected[k]).largest() / size);
  }
  ledger.holds(
      "grad.O2", error, 64 * d * unit_roundoff<double>,
      "dense L_k: dL_k = W (Σ_i r_ik Φ̄_i ∘ Wᴴ dR_i W) Wᴴ, Φ_ab = e^{i(ω_a+ω_b)/2} sinc((ω_a-ω_b)/2): no case for "
      "planes that turn alike; relative to Σ ‖dR_i‖ ‖r_i‖",
      "(extension)");
}

/// O4: X ← A_1 … A_n X of a Householder chain.
template <class Scalar>
void derivative_of_chains(Ledger& ledger, Random& random) {
  constexpr Index d = 5, n = 6, columns = 4;
  using M = Dense<double>;
  const M W = in_double_of(random.matrix<Scalar>(d, n)) / 2., X = in_double_of(random.matrix<Scalar>(d, columns)),
          dY = in_double_of(random.matrix<Scalar>(d, columns)), I = M::identity(n);
  M D = M::zero(n, n), U = W.transpose() * W;
  for (Index t = 0; t < n; ++t) D(t, t) = random.normal();
  for (Index j = 0; j < n; ++j)
    for (Index i = j; i < n; ++i) U(i, j) = 0;
  const M T = (I + D * U).solve(D);
  M dT = -((W.transpose() * dY) * (W.transpose() * X).transpose());
  for (Index j = 0; j < n; ++j)
    for (Index i = j + 1; i < n; ++i) dT(i, j) = 0;
  M dU = -(T.transpose() * dT * T.transpose());
  for (Index j = 0; j < n; ++j)
    for (Index i = j; i < n; ++i) dU(i, j) = 0;
  const M dW = W * (dU + dU.transpose()) - dY * (T * W.transpose() * X).transpose() -
               X * (T.transpose() * W.transpose() * dY).transpose();
  const M d_beta = (I - T * U).transpose() * dT * (I - U * T).transpose(),
          dX = dY - W * T.transpose() * W.transpose() * dY;

  // Step by step: dA_t = (A_1 … A_{t-1})ᵀdY (A_{t+1} … A_n X)ᵀ.
  std::vector<M> behind(n, X);
  const auto moved = [&](Index t, const M& x) {
    return x - D(t, t) * (W.column(t) * (x.transpose() * W.column(t)).transpose());
  };
  for (Index t = n - 1; t > 0; --t)
    behind[static_cast<std::size_t>(t - 1)] = moved(t, behind[static_cast<std::size_t>(t)]);
  M before = dY;
  double error = 0, size = 1;
  for (Index t = 0; t < n; ++t) {
    const M dA = before * behind[static_cast<std::size_t>(t)].transpose();
    const DenseVector<double> w = W.column(t);
    const DenseVector<double> dw = -D(t, t) * (dA * w + dA.transpose() * w);
    size = std::max({size, dA.norm(), 1 + std::abs(D(t, t)) * w.dot(w)});
    error = std::max({error, (dW.column(t) - dw).largest(), std::abs(d_beta(t, t) + w.dot(dA * w))});
    before = moved(t, before);
  }
  error = std::max(error, (dX - before).largest());
  const double condition = T.norm() * U.norm() + 1;
  ledger.holds(
      "grad.O4", error / (size * condition * condition), 64. * n * d * unit_roundoff<double>,
      "a Householder chain in compact form: dT, dU, dW, dβ, dX of X - W T WᵀX, nothing divided by β; relative to "
      "max ‖dA_t‖ (1 + ‖T‖ ‖U‖)²",
      "(extension)");
}

}  // namespace detail

/// Gradients of embeddings, rotations and chains.
///
/// grad.V, grad.L, grad.O1, grad.O2, grad.O4. Inputs are drawn from the seed. Source: none; docs of the library.
template <class Scalar>
void gradient_formula_propositions(Ledger& ledger, std::uint64_t seed) {
  Random random(seed);
  detail::derivative_of_powers<Scalar>(ledger, random);
  detail::derivative_of_cayley<Scalar>(ledger, random);
  detail::derivative_of_exponentials<Scalar>(ledger, random);
  detail::derivative_of_chains<Scalar>(ledger, random);
}

}  // namespace SYMPOW_NAMESPACE::verify
