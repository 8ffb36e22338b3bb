// x ↦ s R x: a rotation and a uniform scaling, one step of conformal-sympow on its state.
#pragma once

#include <cmath>

#include <sympow/core/linear_operator.hpp>

namespace SYMPOW_NAMESPACE {

template <class Rotation>
class Conformal;
template <class Rotation>
struct operator_traits<Conformal<Rotation>> {
  using Scalar = typename Rotation::Scalar;
};

/// A conformal linear map: preserves angles and scales lengths by s.
///
///     T(x) = s R x,   (s R)(t Q) = st RQ,   (s R)ᵀ = s Rᵀ,   (s R)⁻¹ = s⁻¹ Rᵀ
///
/// Shape: that of R. Cost: that of R and one multiplication per entry. Source: Conformal Transformations, §3, eq. (1).
template <class Rotation>
class Conformal : public LinearOperator<Conformal<Rotation>> {
 public:
  using Scalar = typename Rotation::Scalar;

  /// s R. Throws `InvalidArgument` unless s ≥ 0 and finite.
  Conformal(Scalar scale, Rotation rotation) : scale_(scale), rotation_(std::move(rotation)) {
    if (!(scale >= Scalar(0)) || !(scale - scale == Scalar(0)))
      detail::raise<InvalidArgument>("conformal: scale = ", static_cast<double>(scale),
                                     " must be finite and not negative");
  }

  [[nodiscard]] Index rows() const { return rotation_.rows(); }
  [[nodiscard]] Index cols() const { return rotation_.cols(); }
  [[nodiscard]] Scalar scale() const { return scale_; }                 ///< s
  [[nodiscard]] const Rotation& rotation() const { return rotation_; }  ///< R

  [[nodiscard]] Conformal transpose() const { return {scale_, rotation_.transpose()}; }

  /// s⁻¹ Rᵀ. Throws `InvalidArgument` for s = 0.
  [[nodiscard]] Conformal inverse() const { return {Scalar(1) / scale_, rotation_.transpose()}; }

  /// s^k R^k.
  [[nodiscard]] Conformal pow(double k) const {
    using std::pow;
    return {pow(scale_, Scalar(k)), rotation_.pow(k)};
  }

  /// det(s R) = s^d det R.
  [[nodiscard]] Scalar determinant() const {
    using std::pow;
    return pow(scale_, Scalar(static_cast<double>(rows()))) * rotation_.determinant();
  }

  /// (s R)(t Q) = st RQ. Throws as the product of the rotations does.
  [[nodiscard]] friend Conformal operator*(const Conformal& a, const Conformal& b) {
    return {a.scale_ * b.scale_, a.rotation_ * b.rotation_};
  }

  /// y = s R x, as `LinearOperator` requires.
  template <class X, class Y>
  void apply(const X& x, Y&& y) const {
    rotation_.apply(x, y);
    y *= scale_;
  }

 private:
  Scalar scale_;
  Rotation rotation_;
};

/// The map x ↦ s R x.
template <class Rotation>
[[nodiscard]] Conformal<Rotation> conformal(typename Rotation::Scalar scale, Rotation rotation) {
  return {scale, std::move(rotation)};
}

}  // namespace SYMPOW_NAMESPACE
