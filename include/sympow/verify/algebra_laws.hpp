// The laws of the algebra as functions: give them your own rotation, matrix or vectors.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include <sympow/core/linear_operator.hpp>
#include <sympow/tensor/induced.hpp>
#include <sympow/verify/proposition.hpp>
#include <sympow/verify/residual.hpp>

namespace SYMPOW_NAMESPACE::verify {

/// Scores see the difference of two positions only.
///
///     (R^i x)·(R^j y) = x·(R^{j-i} y)
///
/// For any rotation with `pow` and `*`. Residual relative to ‖x‖ ‖y‖; bound 4 d u, and u times the larger power for the
/// angles.
template <StructuredOperator Rotation, VectorExpression X, VectorExpression Y>
[[nodiscard]] Residual relative_position_law(const Rotation& R, const X& x, const Y& y, Index i, Index j) {
  using Scalar = scalar_t<X>;
  const Vector<Scalar> a = x, b = y, left = R.pow(static_cast<double>(i)) * a,
                       right = R.pow(static_cast<double>(j)) * b, moved = R.pow(static_cast<double>(j - i)) * b;
  const double size = static_cast<double>(a.norm()) * static_cast<double>(b.norm());
  const double difference = std::abs(static_cast<double>(left.dot(right)) - static_cast<double>(a.dot(moved)));
  const double power = static_cast<double>(std::max(std::abs(i), std::abs(j)));
  return {size > 0 ? difference / size : 0,
          4 * static_cast<double>(a.size()) * unit_roundoff<Scalar> + 16 * power * unit_roundoff<double>};
}

/// Proposition 2 against the dense definition.
///
///     φ^P(A x) = Sym^P(A) φ^P(x),   Sym^P(A) by permanents
///
/// Residual relative to ‖|A| |x|‖^P, which is what the rounding of a monomial is relative to; bound 8 P d u times √D.
template <int P, MatrixExpression A, VectorExpression X>
[[nodiscard]] Residual proposition_2_law(const A& a, const X& x) {
  using Scalar = scalar_t<X>;
  const Matrix<Scalar> map = a, lift = induced<P>(map).toDenseMatrix();
  const Vector<Scalar> source = x, target = map * source, image = symmetric_power<P>(target),
                       phi = symmetric_power<P>(source), lifted = lift * phi;
  const Matrix<Scalar> absolute_map = map.cwiseAbs();
  const Vector<Scalar> absolute_source = source.cwiseAbs(), longest = absolute_map * absolute_source,
                       difference = image - lifted;
  const double size = std::pow(static_cast<double>(longest.norm()), P);
  const double dimensions = static_cast<double>(x.size()) * std::sqrt(static_cast<double>(image.size()));
  return {size > 0 ? static_cast<double>(difference.norm()) / size : 0, 8 * P * dimensions * unit_roundoff<Scalar>};
}

/// The lift is a homomorphism: Sym^P(A B) = Sym^P(A) Sym^P(B) and Sym^P(Aᵀ) = Sym^P(A)ᵀ, dense.
///
/// Residual relative to the largest entry of Sym^P(|A|) Sym^P(|B|); bound 8 P d u √D.
template <int P, MatrixExpression A, MatrixExpression B>
[[nodiscard]] Residual homomorphism_law(const A& a, const B& b) {
  using Scalar = scalar_t<A>;
  const auto lift = [](const Matrix<Scalar>& m) { return induced<P>(m).toDenseMatrix(); };
  const Matrix<Scalar> left = a, right = b, absolute_left = left.cwiseAbs(), absolute_right = right.cwiseAbs();
  const Matrix<Scalar> lifted_left = lift(left), product = (induced<P>(left) * induced<P>(right)).toDenseMatrix(),
                       of_product = product - lifted_left * lift(right),
                       of_transpose = induced<P>(left).transpose().toDenseMatrix() - lifted_left.transpose(),
                       size = lift(absolute_left) * lift(absolute_right);
  const double largest = static_cast<double>(size.maxCoeff());
  const double difference =
      std::max(static_cast<double>(of_product.cwiseAbs().maxCoeff()), static_cast<double>(of_transpose.norm()));
  const double dimensions = static_cast<double>(left.cols()) * std::sqrt(static_cast<double>(lifted_left.cols()));
  return {largest > 0 ? difference / largest : 0, 8 * P * dimensions * unit_roundoff<Scalar>};
}

/// Operators compose as their matrices do: (R Q) x = R (Q x), Rᵀ R x = s² x for a conformal map, checked on one vector.
///
/// `scale` is s², 1 for a rotation. Residual relative to ‖x‖ times the sizes of the maps; bound 16 u √d.
template <StructuredOperator Operator, VectorExpression X>
[[nodiscard]] Residual group_law(const Operator& R, const Operator& Q, const X& x, scalar_t<X> scale = 1) {
  using Scalar = scalar_t<X>;
  const auto RQ = R * Q;
  const auto transposed = R.transpose();
  const Vector<Scalar> source = x, composed = RQ * source, inner = Q * source, stepwise = R * inner;
  const Vector<Scalar> image = R * source, back = transposed * image;
  const double size =
      static_cast<double>(stepwise.norm()) + static_cast<double>(scale) * static_cast<double>(source.norm());
  const double difference = static_cast<double>((composed - stepwise).norm() + (back - scale * source).norm());
  return {size > 0 ? difference / size : 0, 16 * unit_roundoff<Scalar> * std::sqrt(static_cast<double>(x.size()))};
}

}  // namespace SYMPOW_NAMESPACE::verify
