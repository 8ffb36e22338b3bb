// R(θ): every pair of coordinates turns by its own angle. Never a matrix.
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
/// Shape: d × d for d/2 angles in radians, kept in double and reduced mod 2π. Cost: 6 operations a pair and column; the
/// sines and cosines are computed once. Products of two of them, powers and transposes are O(d) and stay of this type.
/// Source: Conformal Transformations, A.1.2 and A.3.
template <class S>
class BlockRotation : public LinearOperator<BlockRotation<S>> {
 public:
  static constexpr bool is_orthogonal = true;  ///< norms and inner products of images need no evaluation

  /// The rotation by the given angles.
  template <VectorExpression Angles>
  explicit BlockRotation(const Angles& angles, Pairing pairing = Pairing::interleaved)
      : angles_(angles.template cast<double>()),
        cosine_(angles_.size()),
        sine_(angles_.size()),
        turns_(angles_.size()),
        pairing_(pairing) {
    set_turns();
  }

  [[nodiscard]] Index rows() const { return 2 * angles_.size(); }
  [[nodiscard]] Index cols() const { return rows(); }

  /// The d/2 angles, in [-π, π].
  [[nodiscard]] const Eigen::VectorXd& angles() const { return angles_; }
  /// How coordinates form pairs.
  [[nodiscard]] Pairing pairing() const { return pairing_; }

  [[nodiscard]] BlockRotation transpose() const { return pow(-1); }
  [[nodiscard]] BlockRotation inverse() const { return transpose(); }
  [[nodiscard]] S determinant() const { return S(1); }

  /// R(θ)^k = R(kθ) for any real k, by the angles in [-π, π]: a fraction of a turn of 2π is no turn. kθ is rounded
  /// once, in double.
  [[nodiscard]] BlockRotation pow(double k) const { return BlockRotation(k * angles_, pairing_); }

  /// R(a) R(b) = R(a + b). Throws `ShapeMismatch` unless sizes and pairings agree.
  [[nodiscard]] friend BlockRotation operator*(const BlockRotation& a, const BlockRotation& b) {
    detail::check_size("angles of the right rotation", b.angles_.size(), a.angles_.size(),
                       "angles of the left rotation");
    if (a.pairing_ != b.pairing_) detail::raise<ShapeMismatch>("rotations of different pairing cannot be multiplied");
    return BlockRotation(a.angles_ + b.angles_, a.pairing_);
  }

  /// Equal angles and pairing.
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
      detail::turn_columns(x.derived().data(), x.cols(), x.derived().outerStride(), pairs, pairing_, 0, pairs,
                           {turns_.data(), cosine_.data(), sine_.data()});
    } else {
      const bool split = pairing_ == Pairing::half_split;
      for (Index t = 0; t < x.cols(); ++t)
        for (Index j = 0; j < pairs; ++j)
          detail::turn_pair(x(split ? j : 2 * j, t), x(split ? j + pairs : 2 * j + 1, t), cosine_[j], sine_[j]);
    }
  }

  /// The same for blocks and maps that are passed as temporaries: `R.apply_in_place(X.leftCols(n))`.
  template <class Derived>
  void apply_in_place(Eigen::MatrixBase<Derived>&& x) const {
    apply_in_place(x);
  }

  /// Y = R X; the protocol of `LinearOperator`.
  template <class X, class Y>
  void apply(const X& x, Y&& y) const {
    y = x;
    apply_in_place(y);
  }

 private:
  // Reduces the angles and takes their sines and cosines.
  void set_turns();

  Eigen::VectorXd angles_;
  Vector<S> cosine_, sine_;
  Eigen::Array<std::complex<S>, Dynamic, 1> turns_;  // cosine + i sine
  Pairing pairing_;
};

template <class S>
void BlockRotation<S>::set_turns() {
  for (Index j = 0; j < angles_.size(); ++j) {
    angles_[j] = reduced_angle(angles_[j]);
    cosine_[j] = static_cast<S>(std::cos(angles_[j]));
    sine_[j] = static_cast<S>(std::sin(angles_[j]));
    turns_[j] = {cosine_[j], sine_[j]};
  }
}

template <class Angles>
BlockRotation(const Angles&) -> BlockRotation<typename Angles::Scalar>;
template <class Angles>
BlockRotation(const Angles&, Pairing) -> BlockRotation<typename Angles::Scalar>;

}  // namespace SYMPOW_NAMESPACE

/// The class for one type: with `extern` it is compiled elsewhere, with nothing here.
#define SYMPOW_BLOCK_ROTATION(LINKAGE, S)                                                                       \
  namespace sympow {                                                                                            \
  LINKAGE template class BlockRotation<S>;                                                                      \
  LINKAGE template class LinearOperator<BlockRotation<S>>;                                                      \
  LINKAGE template void detail::turn_columns(S*, Index, Index, Index, Pairing, Index, Index, detail::Turns<S>); \
  }

#ifdef SYMPOW_COMPILED_FORMS
SYMPOW_BLOCK_ROTATION(extern, float)
SYMPOW_BLOCK_ROTATION(extern, double)
#endif
