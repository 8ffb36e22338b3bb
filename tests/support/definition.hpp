// The embeddings and the induced map entry by entry as they are defined, in long double and without regard to cost.
#pragma once

#include <cmath>
#include <limits>

#include <sympow/combinatorics/multi_index.hpp>
#include <sympow/core/concepts.hpp>

namespace sympow::test {

using Exact = long double;

/// φ^p(x)_α = √(p! / Π c_i!) Π x_{α_l} over the non-decreasing α.
template <VectorExpression X>
[[nodiscard]] Vector<Exact> defined_symmetric_power(const X& x, int p) {
  const MultiIndices indices(x.size(), p);
  Vector<Exact> phi(indices.size());
  for (Index n = 0; n < indices.size(); ++n) {
    const auto alpha = indices[n];
    phi[n] = std::sqrt(static_cast<Exact>(multinomial(counts(alpha, x.size()))));
    for (const Index i : alpha) phi[n] *= static_cast<Exact>(x[i]);
  }
  return phi;
}

/// a ⊗ b as matrices, the block of a_ij being a_ij b.
[[nodiscard]] inline Matrix<Exact> kronecker(const Matrix<Exact>& a, const Matrix<Exact>& b) {
  Matrix<Exact> product(a.rows() * b.rows(), a.cols() * b.cols());
  for (Index i = 0; i < a.rows(); ++i)
    for (Index j = 0; j < a.cols(); ++j) product.block(i * b.rows(), j * b.cols(), b.rows(), b.cols()) = a(i, j) * b;
  return product;
}

/// a ⊗ … ⊗ a, p factors.
template <MatrixExpression A>
[[nodiscard]] Matrix<Exact> kronecker_power(const A& a, int p) {
  const Matrix<Exact> factor = a.template cast<Exact>();
  Matrix<Exact> product = factor;
  for (int level = 1; level < p; ++level) product = kronecker(product, factor);
  return product;
}

/// J with J_{βα} = 1/√multiplicity(α) where β rearranges α: d^p rows, C(d + p - 1, p) columns.
[[nodiscard]] inline Matrix<Exact> defined_isometry(Index d, int p) {
  const MultiIndices indices(d, p);
  Matrix<Exact> isometry = Matrix<Exact>::Zero(tensor_dimension(d, p), indices.size());
  for (Index row = 0; row < isometry.rows(); ++row) {
    MultiIndex beta(p);
    for (Index rest = row, level = p - 1; level >= 0; --level, rest /= d) beta[static_cast<int>(level)] = rest % d;
    std::ranges::sort(beta);
    isometry(row, indices.rank(beta)) = 1 / std::sqrt(static_cast<Exact>(multinomial(counts(beta, d))));
  }
  return isometry;
}

/// Sym^p(A) = Jᵀ (A ⊗ … ⊗ A) J.
template <MatrixExpression A>
[[nodiscard]] Matrix<Exact> defined_induced(const A& a, int p) {
  return defined_isometry(a.rows(), p).transpose() * kronecker_power(a, p) * defined_isometry(a.cols(), p);
}

/// The largest |a - b| / |b| over the entries; 0/0 counts as 0. Infinite where the shapes differ.
template <MatrixExpression A, MatrixExpression B>
[[nodiscard]] Exact relative_distance(const A& a, const B& b) {
  if (a.rows() != b.rows() || a.cols() != b.cols()) return std::numeric_limits<Exact>::infinity();
  Exact worst = 0;
  for (Index j = 0; j < a.cols(); ++j)
    for (Index i = 0; i < a.rows(); ++i) {
      const auto got = static_cast<Exact>(a(i, j)), expected = static_cast<Exact>(b(i, j));
      if (got == expected) continue;
      const Exact ratio = std::abs(got - expected) / std::abs(expected);
      worst = ratio <= worst ? worst : ratio;  // a NaN is kept
    }
  return worst;
}

}  // namespace sympow::test
