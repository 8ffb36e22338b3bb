// R(θ): rotates every pair of coordinates by its own angle, without a matrix.
#pragma once

#include <sympow/core/linear_operator.hpp>
#include <sympow/rotation/turns.hpp>

namespace SYMPOW_NAMESPACE {

template <class Scalar>
class BlockRotation;
template <class S>
struct operator_traits<BlockRotation<S>> {
  using Scalar = S;
};

/// The block rotation of the papers.
///
///     R(θ) = diag(R_2(θ_1), …, R_2(θ_{d/2})),   R_2(t) = [cos t, -sin t; sin t, cos t]
///     R(a) R(b) = R(a + b),   R(a)ᵀ = R(a)⁻¹ = R(-a),   R(a)^k = R(k a)
///
/// Shape: d × d for d/2 angles in radians, stored in double and reduced mod 2π. Cost: 6 operations per pair and column;
/// sines and cosines are computed once. Products, powers and transposes are O(d) and have this type. Source: Conformal
/// Transformations, A.1.2 and A.3.
template <class S>
class BlockRotation : public LinearOperator<BlockRotation<S>> {
  static_assert(!ExactScalar<S>,
                "the angles of BlockRotation are double: for an exact scalar there is exact::rotation, by the angles "
                "2 arctan t");

 public:
  static constexpr bool is_orthogonal = true;  ///< norms and inner products of images are not evaluated

  /// The rotation by the given angles.
  template <VectorExpression Angles>
  explicit BlockRotation(const Angles& angles, Pairing pairing = Pairing::interleaved)
      : angles_(angles.template cast<double>()),
        cosine_(angles_.size()),
        sine_(angles_.size()),
        phases_(angles_.size()),
        pairing_(pairing) {
    set_phases();
  }

  [[nodiscard]] Index rows() const { return 2 * angles_.size(); }
  [[nodiscard]] Index cols() const { return rows(); }

  /// The d/2 angles, in [-π, π].
  [[nodiscard]] const Eigen::VectorXd& angles() const { return angles_; }
  /// Which coordinates form a pair.
  [[nodiscard]] Pairing pairing() const { return pairing_; }

  [[nodiscard]] BlockRotation transpose() const { return pow(-1); }
  [[nodiscard]] BlockRotation inverse() const { return transpose(); }
  [[nodiscard]] S determinant() const { return S(1); }

  /// R(θ)^k = R(kθ) for any real k, with θ in [-π, π]; kθ is rounded once, in double.
  [[nodiscard]] BlockRotation pow(double k) const { return BlockRotation(k * angles_, pairing_); }

  /// R(a) R(b) = R(a + b). Throws `ShapeMismatch` unless sizes and pairings agree.
  [[nodiscard]] friend BlockRotation operator*(const BlockRotation& a, const BlockRotation& b) {
    detail::check_size("angles of the right rotation", b.angles_.size(), a.angles_.size(),
                       "angles of the left rotation");
    if (a.pairing_ != b.pairing_) detail::raise<ShapeMismatch>("rotations of different pairing cannot be multiplied");
    return BlockRotation(a.angles_ + b.angles_, a.pairing_);
  }

  /// Whether angles and pairing are equal.
  [[nodiscard]] friend bool operator==(const BlockRotation& a, const BlockRotation& b) {
    return a.pairing_ == b.pairing_ && a.angles_.size() == b.angles_.size() && a.angles_ == b.angles_;
  }

  /// X ← R X, column by column. Throws `ShapeMismatch` unless X has d rows.
  template <class Derived>
  void apply_in_place(Eigen::MatrixBase<Derived>& x) const {
    detail::check_size("rows of the batch", x.rows(), rows(), "twice the number of angles");
    constexpr bool columns_in_memory = (Derived::Flags & Eigen::DirectAccessBit) != 0 &&
                                       int(Derived::InnerStrideAtCompileTime) == 1 && !Derived::IsRowMajor;
    const Index pairs = angles_.size();
    if constexpr (columns_in_memory) {
      detail::rotate_columns(x.derived().data(), x.cols(), x.derived().outerStride(), pairs, pairing_, 0, pairs,
                             {phases_.data(), cosine_.data(), sine_.data()});
    } else {
      const bool split = pairing_ == Pairing::half_split;
      for (Index t = 0; t < x.cols(); ++t)
        for (Index j = 0; j < pairs; ++j)
          detail::rotate_pair(x(split ? j : 2 * j, t), x(split ? j + pairs : 2 * j + 1, t), cosine_[j], sine_[j]);
    }
  }

  /// X ← R X for temporary blocks and maps: `R.apply_in_place(X.leftCols(n))`.
  template <class Derived>
  void apply_in_place(Eigen::MatrixBase<Derived>&& x) const {
    apply_in_place(x);
  }

  /// Y = R X, as `LinearOperator` requires.
  template <class X, class Y>
  void apply(const X& x, Y&& y) const {
    y = x;
    apply_in_place(y);
  }

 private:
  // Reduces the angles and computes their sines and cosines.
  void set_phases();

  Eigen::VectorXd angles_;
  Vector<S> cosine_, sine_;
  Eigen::Array<std::complex<S>, Dynamic, 1> phases_;  // cosine + i sine
  Pairing pairing_;
};

template <class S>
void BlockRotation<S>::set_phases() {
  for (Index j = 0; j < angles_.size(); ++j) {
    angles_[j] = reduced_angle(angles_[j]);
    cosine_[j] = static_cast<S>(std::cos(angles_[j]));
    sine_[j] = static_cast<S>(std::sin(angles_[j]));
    phases_[j] = {cosine_[j], sine_[j]};
  }
}

template <class Angles>
BlockRotation(const Angles&) -> BlockRotation<typename Angles::Scalar>;
template <class Angles>
BlockRotation(const Angles&, Pairing) -> BlockRotation<typename Angles::Scalar>;

}  // namespace SYMPOW_NAMESPACE

/// Explicit instantiations for one scalar type; LINKAGE is `extern` where another file compiles them.
#define SYMPOW_BLOCK_ROTATION(LINKAGE, S)                                                                          \
  namespace sympow {                                                                                               \
  LINKAGE template class BlockRotation<S>;                                                                         \
  LINKAGE template class LinearOperator<BlockRotation<S>>;                                                         \
  LINKAGE template void detail::rotate_columns(S*, Index, Index, Index, Pairing, Index, Index, detail::Phases<S>); \
  }

#ifdef SYMPOW_COMPILED_FORMS
SYMPOW_BLOCK_ROTATION(extern, float)
SYMPOW_BLOCK_ROTATION(extern, double)
#endif
