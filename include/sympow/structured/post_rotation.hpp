// R_sp(r) = R_STR(r) P: a structured rotation after a fixed one, and two logits that use it.
#pragma once

#include <cmath>

#include <sympow/structured/commuting_generators.hpp>

namespace SYMPOW_NAMESPACE {

template <class Scalar, class Map>
class PostRotation;
template <class S, class Map>
struct operator_traits<PostRotation<S, Map>> {
  using Scalar = S;
};

/// R_sp(r) = R_STR(r) P for a rotation P, such as `cayley(S)`.
///
///     R_sp(r)ᵀ R_sp(s) = Pᵀ R_STR(s - r) P        for every P
///
/// This equals R_sp(s - r) on the active space for P in 𝒜 only (see `distance_to_block_identity`). Shape: d × d. Cost:
/// that of both. Source: Equivariant Structured Positional Rotations, (19), which claims equality for every P.
template <class S, class Map>
class PostRotation : public LinearOperator<PostRotation<S, Map>> {
 public:
  static constexpr bool is_orthogonal = true;  ///< norms and inner products of images are not evaluated

  /// Throws `ShapeMismatch` unless both have the same dimension.
  PostRotation(StructuredRotation<S> rotation, Map P) : rotation_(std::move(rotation)), P_(std::move(P)) {
    detail::check_size("rows of P", P_.rows(), rotation_.rows(), "dimension of the rotation");
    detail::check_size("columns of P", P_.cols(), rotation_.rows(), "dimension of the rotation");
  }

  [[nodiscard]] Index rows() const { return rotation_.rows(); }
  [[nodiscard]] Index cols() const { return rotation_.rows(); }
  [[nodiscard]] const StructuredRotation<S>& rotation() const { return rotation_; }  ///< R_STR(r)
  [[nodiscard]] const Map& post() const { return P_; }                               ///< P

  /// Whether rotations and P are equal.
  [[nodiscard]] friend bool operator==(const PostRotation& a, const PostRotation& b) {
    return a.rotation_ == b.rotation_ && a.P_ == b.P_;
  }

  /// R_sp(r)ᵀ R_sp(s) X = Pᵀ R_STR(s - r) P X, with r of this rotation.
  template <MatrixExpression X>
  [[nodiscard]] Matrix<S> relative(const PostRotation& s, const X& x) const {
    return P_.transpose() * Matrix<S>((rotation_.transpose() * s.rotation_) * Matrix<S>(P_ * x));
  }

  /// Y = R_STR(r) P X, as `LinearOperator` requires.
  template <class X, class Y>
  void apply(const X& x, Y&& y) const {
    const Matrix<S> image = P_ * x;
    rotation_.apply(image, y);
  }

 private:
  StructuredRotation<S> rotation_;
  Map P_;
};

/// R_STR(r) P.
template <class S, StructuredOperator Map>
[[nodiscard]] PostRotation<S, Map> post_rotation(const StructuredRotation<S>& rotation, const Map& P) {
  return {rotation, P};
}

/// The projected logit of a query at position r and a key at s.
///
///     α = (2m)^-½ (Π R_sp(r) Π q)ᵀ (Π R_sp(s) Π k) = (2m)^-½ (Π q)ᵀ Pᵀ Π R_STR(s - r) Π P (Π k),   Π = Π_act
///
/// It depends on s - r only; P in 𝒜 has no effect. Throws `ShapeMismatch`, and `EmptyActiveSpace` if no plane is
/// active. Source: Equivariant Structured Positional Rotations, Theorem 1, (20) to (24).
template <class S, class Map, VectorExpression Q, VectorExpression K, VectorExpression R>
[[nodiscard]] S projected_logit(const CommutingGenerators<S>& family, const Map& P, const Q& q, const R& r, const K& k,
                                const R& s) {
  family.require_active();
  const Matrix<S> a = family.project_active(Matrix<S>(P * family.project_active(q)));
  const Matrix<S> b = family.project_active(Matrix<S>(P * family.project_active(k)));
  const auto relative = family.at(s.template cast<double>() - r.template cast<double>());
  return a.col(0).dot(Matrix<S>(relative * b).col(0)) / std::sqrt(static_cast<S>(family.active_dimension()));
}

/// The logit without projections, which includes the null space (partial RoPE for P = I).
///
///     d^-½ (R_sp(r) q)ᵀ (R_sp(s) k) = d^-½ (P q)ᵀ R_STR(s - r) (P k)
///
/// Throws `ShapeMismatch`.
template <class S, class Map, VectorExpression Q, VectorExpression K, VectorExpression R>
[[nodiscard]] S unprojected_logit(const CommutingGenerators<S>& family, const Map& P, const Q& q, const R& r,
                                  const K& k, const R& s) {
  const auto relative = family.at(s.template cast<double>() - r.template cast<double>());
  const Matrix<S> a = P * q, b = P * k;
  return a.col(0).dot(Matrix<S>(relative * b).col(0)) / std::sqrt(static_cast<S>(family.dimension()));
}

}  // namespace SYMPOW_NAMESPACE
