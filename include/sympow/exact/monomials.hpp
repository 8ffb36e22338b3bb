// The symmetric power in two parts, monomials and weights, of which neither has a square root in it.
#pragma once

#include <sympow/combinatorics/multi_index.hpp>
#include <sympow/core/concepts.hpp>
#include <sympow/tensor/induced.hpp>

/// The papers' formulas to the letter, in arithmetic of any field: no exponents, no tails, no roots. With `Rational`
/// they are exact.
namespace SYMPOW_NAMESPACE::exact {

/// Monomials of degree p.
///
///     m(x)_α = Π_l x_{α_l}   over the non-decreasing α in the order of `MultiIndices`
///     φ(x) = W^½ m(x),   φ(x)·φ(y) = m(x)ᵀ W m(y) = (x·y)^p
///
/// d → C(d + p - 1, p). Cost: p multiplications an entry.
template <VectorExpression X>
[[nodiscard]] Vector<scalar_t<X>> monomials(const X& x, int p) {
  const Vector<scalar_t<X>> v = x;
  const MultiIndices indices(v.size(), p);
  Vector<scalar_t<X>> m = Vector<scalar_t<X>>::Ones(indices.size());
  Index n = 0;
  for (const auto& alpha : indices) {
    for (const Index i : alpha) m[n] *= v[i];
    ++n;
  }
  return m;
}

/// The diagonal of W: W_α = p!/Π c_i(α)!, integers.
template <class Scalar>
[[nodiscard]] Vector<Scalar> weights(Index d, int p) {
  const MultiIndices indices(d, p);
  Vector<Scalar> w(indices.size());
  Index n = 0;
  for (const auto& alpha : indices) w[n++] = Scalar(multiplicity(alpha));
  return w;
}

/// The matrix of A on monomials.
///
///     m(A x) = L(A) m(x),   L(A)_αβ = per(A[α|β]) / Π c_i(β)!,   Sym(A) = W^½ L(A) W^-½
///
/// m × n → C(m + p - 1, p) × C(n + p - 1, p). Cost: p 2^p an entry. Source: Conformal Transformations, Proposition 2.
template <MatrixExpression X>
[[nodiscard]] Matrix<scalar_t<X>> lift(const X& a, int p) {
  using Scalar = scalar_t<X>;
  const Matrix<Scalar> A = a;
  const MultiIndices targets(A.rows(), p), sources(A.cols(), p);
  Matrix<Scalar> L(targets.size(), sources.size()), minor(p, p);
  Index row = 0, column = 0;
  for (const auto& alpha : targets) {
    column = 0;
    for (const auto& beta : sources) {
      for (int l = 0; l < p; ++l)
        for (int m = 0; m < p; ++m) minor(l, m) = A(alpha[l], beta[m]);
      L(row, column++) = permanent(minor) / Scalar(stabilizer_order(beta));
    }
    ++row;
  }
  return L;
}

/// φ^p as a feature map of `exact::definition`: monomials, weights and the map of A.
struct Power {
  int p = 2;  ///< the degree
  template <class Scalar>
  [[nodiscard]] Scalar kappa(const Scalar& s) const {  ///< s^p
    Scalar power(1);
    for (int n = 0; n < p; ++n) power *= s;
    return power;
  }
  template <class Scalar>
  [[nodiscard]] Vector<Scalar> embed(const Vector<Scalar>& x) const {  ///< m(x)
    return monomials(x, p);
  }
  template <class Scalar>
  [[nodiscard]] Vector<Scalar> metric(Index d) const {  ///< W
    return weights<Scalar>(d, p);
  }
  template <class Scalar>
  [[nodiscard]] Matrix<Scalar> lifted(const Matrix<Scalar>& A) const {  ///< L(A)
    return lift(A, p);
  }
};

}  // namespace SYMPOW_NAMESPACE::exact
