// The states on both sides of a chunk whose transition mixes channels, on the way back.
#pragma once

#include <sympow/attention/gradient/memory.hpp>
#include <sympow/transition/transition.hpp>

namespace SYMPOW_NAMESPACE::detail {

/// S⁺ = [S; Z] before a chunk and H behind it, (e + 1) × d, as they were before the chunk has changed them: what the
/// transition's way back reads of them, and what mixes on the way.
template <class Scalar>
class MixedStates {
 public:
  MixedStates(const TransitionView<Scalar>& transition, AdjointMemory<Scalar>& memory, Index e, Index d)
      : transition_(transition), memory_(memory), rows_(e + 1), d_(d) {}

  /// Memory for them.
  void reserve() { state(), adjoint(), moved(); }

  void keep(const FoldedSums<Scalar>& S, const FoldedSums<Scalar>& H) {
    state() << S.S, S.Z.transpose();
    adjoint() << H.S, H.Z.transpose();
    exponent_ = S.empty() || H.empty() ? no_weight : S.exponent() + H.exponent();
  }
  /// The power of two that both have in common, log2 of 0 where one of them is empty or nothing has been kept.
  [[nodiscard]] double exponent() const { return exponent_; }

  /// ⟨H, S⁺ A_a … A_b⟩ of what is kept.
  double product_through(Segment chunk) {
    auto through = moved();
    through = state();
    transition_.advance(chunk, Batch<Scalar>(through));
    return static_cast<double>(dot_product(through.data(), adjoint().data(), rows_ * d_));
  }
  /// H ← H (A_a … A_b)ᵀ.
  void pull(Segment chunk, FoldedSums<Scalar>& H) {
    auto transposed = memory_.transposed(d_, rows_ - 1);
    set_copy(transposed, H.S.transpose());
    transition_.pull(chunk, Batch<Scalar>(transposed));
    set_copy(H.S, transposed.transpose());
    transition_.pull(chunk, Batch<Scalar>(H.Z));
  }
  /// Gives the product of what is kept the unit 2^R, the decay over the chunk included; false if there is none.
  bool set_unit(const LogDecay& total, double R) {
    if (exponent_ == no_weight) return false;
    state() *= static_cast<Scalar>(total.weight(exponent_ - R));
    return true;
  }

 private:
  MatrixView<Scalar> state() { return memory_.state(rows_, d_); }
  MatrixView<Scalar> adjoint() { return memory_.adjoint(rows_, d_); }
  MatrixView<Scalar> moved() { return memory_.transposed(rows_, d_); }

  const TransitionView<Scalar>& transition_;
  AdjointMemory<Scalar>& memory_;
  Index rows_, d_;
  double exponent_ = no_weight;
};

}  // namespace SYMPOW_NAMESPACE::detail
