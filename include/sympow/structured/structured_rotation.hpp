// R(r) = exp(Σ r_k L_k) of commuting generators: rotates planes of a basis, without a matrix.
#pragma once

#include <algorithm>
#include <memory>

#include <sympow/core/linear_operator.hpp>
#include <sympow/core/view.hpp>
#include <sympow/rotation/block_rotation.hpp>
#include <sympow/simd/product.hpp>

namespace SYMPOW_NAMESPACE {

template <class Scalar>
class StructuredRotation;
template <class S>
struct operator_traits<StructuredRotation<S>> {
  using Scalar = S;
};
template <class Scalar>
class CommutingGenerators;

/// A rotation by one angle in each plane of a family of commuting generators.
///
///     R = U [R_2(θ_1) ⊕ … ⊕ R_2(θ_m) ⊕ I] Uᵀ,   R(r) R(s) = R(r + s),   R(r)ᵀ = R(-r),   R(r)ᵀ R(s) = R(s - r)
///
/// Construct with `family.at(r)`. Shape: d × d. Cost of R X for n columns: 6 m n operations, and 4 d² n for two
/// products by U unless U = I. Products within a family, powers and transposes are O(m) and have this type. Source:
/// Equivariant Structured Positional Rotations, (11) and (12).
template <class S>
class StructuredRotation : public LinearOperator<StructuredRotation<S>> {
 public:
  static constexpr bool is_orthogonal = true;  ///< norms and inner products of images are not evaluated

  [[nodiscard]] Index rows() const { return d_; }
  [[nodiscard]] Index cols() const { return d_; }

  /// The rotation in the basis of the planes.
  [[nodiscard]] const BlockRotation<S>& blocks() const { return blocks_; }

  [[nodiscard]] StructuredRotation transpose() const { return {blocks_.transpose(), d_, basis_}; }
  [[nodiscard]] StructuredRotation inverse() const { return transpose(); }
  [[nodiscard]] S determinant() const { return S(1); }

  /// R^k, with angles in [-π, π]; for integer k it is R(k r).
  [[nodiscard]] StructuredRotation pow(double k) const { return {blocks_.pow(k), d_, basis_}; }

  /// R(r) R(s) = R(r + s). Throws `FrameMismatch` unless both come from one family or its copies.
  [[nodiscard]] friend StructuredRotation operator*(const StructuredRotation& a, const StructuredRotation& b) {
    if (a.d_ != b.d_ || a.blocks_.rows() != b.blocks_.rows() || a.basis_ != b.basis_)
      detail::raise<FrameMismatch>("structured rotations of different families cannot be multiplied into one");
    return {a.blocks_ * b.blocks_, a.d_, a.basis_};
  }

  /// Whether families and angles are equal.
  [[nodiscard]] friend bool operator==(const StructuredRotation& a, const StructuredRotation& b) {
    return a.d_ == b.d_ && a.basis_ == b.basis_ && a.blocks_ == b.blocks_;
  }

  /// X ← Uᵀ R U X, for X already in the basis of the planes.
  template <class Derived>
  void apply_in_block_basis(Eigen::MatrixBase<Derived>& x) const {
    detail::check_size("rows of the batch", x.rows(), d_, "dimension of the rotation");
    blocks_.apply_in_place(x.topRows(blocks_.rows()));
  }
  /// X ← Uᵀ R U X for temporary blocks and maps.
  template <class Derived>
  void apply_in_block_basis(Eigen::MatrixBase<Derived>&& x) const {
    apply_in_block_basis(x);
  }

  /// Y = R X, as `LinearOperator` requires.
  template <class X, class Y>
  void apply(const X& x, Y&& y) const {
    if (basis_ == nullptr) {
      y = x;
      apply_in_block_basis(y);
    } else if constexpr (std::convertible_to<Y&, Batch<S>>) {
      rotate(x, y);
    } else {
      Matrix<S> image(d_, x.cols());
      rotate(x, image);
      y = image;
    }
  }

 private:
  friend CommutingGenerators<S>;
  StructuredRotation(BlockRotation<S> blocks, Index d, std::shared_ptr<const Matrix<S>> basis)
      : blocks_(std::move(blocks)), d_(d), basis_(std::move(basis)) {}

  // Y = R X for U ≠ I.
  void rotate(const ConstBatch<S>& x, Batch<S> y) const;

  BlockRotation<S> blocks_;
  Index d_;
  std::shared_ptr<const Matrix<S>> basis_;  // null: the identity
};

template <class S>
void StructuredRotation<S>::rotate(const ConstBatch<S>& x, Batch<S> y) const {
  constexpr Index block = 256;  // columns that stay in cache between the products
  Matrix<S> rotated(d_, std::min(block, x.cols()));
  for (Index t = 0; t < x.cols(); t += block) {
    const Index n = std::min(block, x.cols() - t);
    auto panel = detail::MatrixView<S>(rotated).leftCols(n);
    detail::set_product(panel, basis_->transpose(), detail::MatrixView<const S>(x).middleCols(t, n));
    blocks_.apply_in_place(panel.topRows(blocks_.rows()));
    detail::set_product(detail::MatrixView<S>(y).middleCols(t, n), *basis_, panel);
  }
}

}  // namespace SYMPOW_NAMESPACE

/// Explicit instantiations for one scalar type; LINKAGE is `extern` where another file compiles them.
#define SYMPOW_STRUCTURED_ROTATION(LINKAGE, S)                  \
  namespace sympow {                                            \
  LINKAGE template class StructuredRotation<S>;                 \
  LINKAGE template class LinearOperator<StructuredRotation<S>>; \
  }

#ifdef SYMPOW_COMPILED_FORMS
SYMPOW_STRUCTURED_ROTATION(extern, float)
SYMPOW_STRUCTURED_ROTATION(extern, double)
#endif
