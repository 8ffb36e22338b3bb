// Matrices that are exactly what they are called: rotations with rational entries, inverses, determinants, ranks.
#pragma once

#include <utility>

#include <sympow/core/checks.hpp>
#include <sympow/core/concepts.hpp>

namespace SYMPOW_NAMESPACE::exact {

/// R_2 by the angle 2 arctan t: the rational points of the circle.
///
///     cos = (1 - t²)/(1 + t²),   sin = 2 t/(1 + t²)
template <class Scalar>
struct Turn {
  Scalar cosine;  ///< of the angle
  Scalar sine;    ///< likewise

  /// By t.
  explicit Turn(const Scalar& t)
      : cosine((Scalar(1) - t * t) / (Scalar(1) + t * t)), sine((t + t) / (Scalar(1) + t * t)) {}
};

/// R(θ) = diag(R_2(θ_1), …, R_2(θ_{d/2})), θ_n = 2 arctan t_n: exactly orthogonal, d × d.
template <VectorExpression X>
[[nodiscard]] Matrix<scalar_t<X>> rotation(const X& t) {
  Matrix<scalar_t<X>> R = Matrix<scalar_t<X>>::Zero(2 * t.size(), 2 * t.size());
  for (Index n = 0; n < t.size(); ++n) {
    const Turn<scalar_t<X>> turn(t[n]);
    R(2 * n, 2 * n) = R(2 * n + 1, 2 * n + 1) = turn.cosine;
    R(2 * n + 1, 2 * n) = turn.sine;
    R(2 * n, 2 * n + 1) = -turn.sine;
  }
  return R;
}

/// A by Gauss and Jordan: its rank, its determinant, and B where [A B] becomes [I A⁻¹B]. Cost: d³.
template <class Scalar>
struct Elimination {
  Index rank = 0;           ///< of A
  Scalar determinant{1};    ///< of A, where it is square
  Matrix<Scalar> solution;  ///< A⁻¹ B

  /// Of A and B.
  Elimination(Matrix<Scalar> a, Matrix<Scalar> b) : solution(std::move(b)) {
    for (Index column = 0; column < a.cols(); ++column) {
      Index pivot = rank;
      while (pivot < a.rows() && a(pivot, column) == Scalar(0)) ++pivot;
      if (pivot == a.rows()) continue;
      if (pivot != rank) {
        for (Index j = 0; j < a.cols(); ++j) std::swap(a(pivot, j), a(rank, j));
        for (Index j = 0; j < solution.cols(); ++j) std::swap(solution(pivot, j), solution(rank, j));
        determinant = -determinant;
      }
      const Scalar value = a(rank, column);
      determinant *= value;
      for (Index j = 0; j < a.cols(); ++j) a(rank, j) /= value;
      for (Index j = 0; j < solution.cols(); ++j) solution(rank, j) /= value;
      for (Index i = 0; i < a.rows(); ++i) {
        const Scalar factor = a(i, column);
        if (i == rank || factor == Scalar(0)) continue;
        for (Index j = 0; j < a.cols(); ++j) a(i, j) -= factor * a(rank, j);
        for (Index j = 0; j < solution.cols(); ++j) solution(i, j) -= factor * solution(rank, j);
      }
      ++rank;
    }
    if (rank < a.rows() || rank < a.cols()) determinant = Scalar(0);
  }
};

/// det A.
template <MatrixExpression X>
[[nodiscard]] scalar_t<X> determinant(const X& a) {
  sympow::detail::check_size("columns of the matrix", a.cols(), a.rows(), "its rows");
  return Elimination<scalar_t<X>>(a, {}).determinant;
}

/// The rank of A.
template <MatrixExpression X>
[[nodiscard]] Index rank(const X& a) {
  return Elimination<scalar_t<X>>(a, {}).rank;
}

/// A⁻¹. Throws `InvalidArgument` if A is singular.
template <MatrixExpression X>
[[nodiscard]] Matrix<scalar_t<X>> inverse(const X& a) {
  sympow::detail::check_size("columns of the matrix", a.cols(), a.rows(), "its rows");
  Elimination<scalar_t<X>> done(a, Matrix<scalar_t<X>>::Identity(a.rows(), a.rows()));
  if (done.rank < a.rows()) sympow::detail::raise<InvalidArgument>("exact::inverse: the matrix is singular");
  return done.solution;
}

/// (I - S)(I + S)⁻¹: a rotation if S is skew. Source: Equivariant Structured Positional Rotations, Lemma 3.
template <MatrixExpression X>
[[nodiscard]] Matrix<scalar_t<X>> cayley(const X& S) {
  const Matrix<scalar_t<X>> one = Matrix<scalar_t<X>>::Identity(S.rows(), S.rows());
  return (one - S) * inverse(one + S);
}

/// I - β w wᵀ.
template <VectorExpression X>
[[nodiscard]] Matrix<scalar_t<X>> householder(const X& w, const scalar_t<X>& beta) {
  Matrix<scalar_t<X>> H = Matrix<scalar_t<X>>::Identity(w.size(), w.size());
  H -= beta * (w * w.transpose());
  return H;
}

/// A^n for n ≥ 0. Throws `InvalidArgument` for n < 0.
template <MatrixExpression X>
[[nodiscard]] Matrix<scalar_t<X>> power(const X& a, Index n) {
  if (n < 0) sympow::detail::raise<InvalidArgument>("exact::power: n is ", n, ", must not be negative");
  Matrix<scalar_t<X>> result = Matrix<scalar_t<X>>::Identity(a.rows(), a.rows());
  for (Index k = 0; k < n; ++k) result = (result * a).eval();
  return result;
}

}  // namespace SYMPOW_NAMESPACE::exact
