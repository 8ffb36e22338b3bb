// Symmetric tensors: the basis S^α, its polarization, coordinates, and the isometry from φ_SYM to φ_TP. Tensors of
// order p over R^d are flat vectors of length d^p, the last index fastest.
#pragma once

#include <sympow/combinatorics/multi_index.hpp>
#include <sympow/core/linear_operator.hpp>
#include <sympow/tensor/tensor_power.hpp>

namespace SYMPOW_NAMESPACE {

/// Position of the entry T_α in a flat tensor over R^d: α_1 d^{p-1} + … + α_p. α in any order. Throws
/// `InvalidMultiIndex`.
[[nodiscard]] inline Index flat_position(std::span<const Index> alpha, Index d) {
  Index position = 0;
  for (const Index i : alpha) {
    if (i < 0 || i >= d) detail::raise<InvalidMultiIndex>("flat_position: entry ", i, " must lie in 0 … ", d - 1);
    position = position * d + i;
  }
  return position;
}

/// Basis element of the symmetric tensors.
///
///     S^α = Σ_{σ ∈ G_p} e_{α_σ(1)} ⊗ … ⊗ e_{α_σ(p)},   S^α_β = |stab(α)| where β rearranges α, else 0
///
/// Shape: d^p. Cost: the orbit of α. Source: Symmetric Power Transformers, §4.1.
template <class Scalar, int P>
[[nodiscard]] Vector<Scalar> symmetric_basis(const MultiIndex<P>& alpha, Index d) {
  Vector<Scalar> tensor = Vector<Scalar>::Zero(tensor_dimension(d, alpha.size()));
  for (const auto& beta : orbit(alpha)) tensor[flat_position(beta, d)] = static_cast<Scalar>(stabilizer_order(alpha));
  return tensor;
}

/// The basis element S^α from rank-one tensors (polarization).
///
///     Z^α = Σ_{b ∈ {0,1}^p} (-1)^{p - |b|} v_b ⊗ … ⊗ v_b,   v_b = Σ_l b_l e_{α_l};   Z^α = S^α
///
/// Shape: d^p. Cost: 2^p tensor powers. Throws `InvalidMultiIndex`. Source: Symmetric Power Transformers, §4.1.
template <class Scalar, int P>
[[nodiscard]] Vector<Scalar> polarization(const MultiIndex<P>& alpha, Index d) {
  static_cast<void>(flat_position(alpha, d));  // rejects entries outside of 0 … d - 1
  const int p = alpha.size();
  Vector<Scalar> tensor = Vector<Scalar>::Zero(tensor_dimension(d, p));
  for (unsigned subset = 0; subset < (1u << p); ++subset) {
    Vector<Scalar> v = Vector<Scalar>::Zero(d);
    int sign = p % 2 == 0 ? 1 : -1;
    for (int level = 0; level < p; ++level)
      if (subset >> level & 1u) {
        v[alpha[level]] += Scalar(1);
        sign = -sign;
      }
    tensor += static_cast<Scalar>(sign) * tensor_power(v, p);
  }
  return tensor;
}

/// Coordinates of a symmetric tensor in the basis S^α.
///
///     x_α = T_α / |stab(α)|   over the non-decreasing α in order
///
/// Shapes: d^p → C(d + p - 1, p). Reads one entry per orbit, so T must be symmetric. Throws `ShapeMismatch`.
template <VectorExpression T>
[[nodiscard]] auto symmetric_coordinates(const T& tensor, Index d, int p) {
  detail::check_size("length of the tensor", tensor.size(), tensor_dimension(d, p), "d^p");
  const MultiIndices indices(d, p);
  const auto& values = tensor.eval();
  Vector<scalar_t<T>> coordinates(indices.size());
  Index n = 0;
  for (const auto& alpha : indices)
    coordinates[n++] = values[flat_position(alpha, d)] / static_cast<scalar_t<T>>(stabilizer_order(alpha));
  return coordinates;
}

/// The symmetric tensor with the given coordinates, the inverse of `symmetric_coordinates`.
///
///     T = Σ_α x_α S^α
///
/// Shapes: C(d + p - 1, p) → d^p. Throws `ShapeMismatch`. Source: Symmetric Power Transformers, §4.1.
template <VectorExpression X>
[[nodiscard]] auto symmetric_tensor(const X& coordinates, Index d, int p) {
  const MultiIndices indices(d, p);
  detail::check_size("number of coordinates", coordinates.size(), indices.size(), "C(d + p - 1, p)");
  const auto& values = coordinates.eval();
  Vector<scalar_t<X>> tensor(tensor_dimension(d, p));
  Index n = 0;
  for (const auto& alpha : indices) {
    const auto value = values[n++] * static_cast<scalar_t<X>>(stabilizer_order(alpha));
    for (const auto& beta : orbit(alpha)) tensor[flat_position(beta, d)] = value;
  }
  return tensor;
}

template <class Scalar, bool Transposed>
class SymmetricIsometry;
template <class S, bool Transposed>
struct operator_traits<SymmetricIsometry<S, Transposed>> {
  using Scalar = S;
};

/// The isometry J between the two embeddings, as an operator.
///
///     φ_TP(x) = J φ_SYM(x),   JᵀJ = I,   J_{β α} = 1/√multiplicity(α) where β rearranges α
///
/// Shape: d^p × C(d + p - 1, p). Cost: d^p per column; stores nothing. Source: the map from φ^p to ⊗^p that Proposition
/// 2 of Conformal Transformations needs; see docs/errata.md.
template <class S, bool Transposed = false>
class SymmetricIsometry : public LinearOperator<SymmetricIsometry<S, Transposed>> {
 public:
  /// J for tensors of order p over R^d. Throws `InvalidPower` and `DimensionOverflow`.
  SymmetricIsometry(Index d, int p) : indices_(d, p), tensor_size_(tensor_dimension(d, p)) {}

  [[nodiscard]] Index rows() const { return Transposed ? indices_.size() : tensor_size_; }
  [[nodiscard]] Index cols() const { return Transposed ? tensor_size_ : indices_.size(); }
  [[nodiscard]] SymmetricIsometry<S, !Transposed> transpose() const { return {indices_.dimension(), indices_.power()}; }

  template <class X, class Y>
  void apply(const X& x, Y&& y) const {
    const typename X::PlainObject source = x;
    Index n = 0;
    for (const auto& alpha : indices_) {
      const S weight = S(1 / std::sqrt(static_cast<double>(multiplicity(alpha))));
      if constexpr (Transposed) {
        y.row(n).setZero();
        for (const auto& beta : orbit(alpha))
          y.row(n) += weight * source.row(flat_position(beta, indices_.dimension()));
      } else {
        for (const auto& beta : orbit(alpha)) y.row(flat_position(beta, indices_.dimension())) = weight * source.row(n);
      }
      ++n;
    }
  }

 private:
  MultiIndices<> indices_;
  Index tensor_size_;
};

}  // namespace SYMPOW_NAMESPACE
