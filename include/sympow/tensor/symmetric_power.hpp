// The symmetric power embedding φ^p: x ⊗ … ⊗ x without repeated entries.
#pragma once

#include <sympow/tensor/power_embedding.hpp>
#include <sympow/tensor/symmetric_power_columns.hpp>

namespace SYMPOW_NAMESPACE {
namespace detail {

struct SymmetricPowerEmbedding {
  static constexpr Index dimension(Index d, int p) { return symmetric_dimension(d, p); }

  template <int P, class Source, class Target>
  static void fill(const Source& x, Target& y) {
    if constexpr (P == 1) {
      y = x;
    } else {
      using Scalar = typename Source::Scalar;
      using Column = decltype(y.col(0));
      SymmetricPowerColumns<Scalar> columns(P, x.rows());
      for (Index t = 0; t < x.cols(); ++t) {
        if constexpr ((Column::Flags & Eigen::DirectAccessBit) != 0 && Column::InnerStrideAtCompileTime == 1)
          columns.fill(x.col(t).data(), ColumnInMemory<Scalar>(y.col(t).data(), y.rows()));
        else
          columns.fill(x.col(t).data(), AnyColumn<Column>(y.col(t)));
      }
    }
  }
};

/// A sentence for scalars whose square roots would be rounded.
template <class Scalar>
constexpr void check_has_roots() {
  static_assert(!ExactScalar<Scalar>,
                "the weights of symmetric_power are square roots, which are rounded: for an exact scalar there are "
                "exact::monomials and exact::weights");
}

}  // namespace detail

/// Symmetric power embedding of every column.
///
///     φ^P(x)_α = √(P! / Π c_i(α)!) Π_l x_{α_l}   over the non-decreasing α in lexicographic order (`MultiIndices`)
///     φ^P(x)·φ^P(y) = (x·y)^P,   ‖φ^P(x)‖ = ‖x‖^P
///
/// Shapes: d × n → C(d + P - 1, P) × n, lazily; a vector gives a vector. Cost per column: at most C(d + P, P) - 1 + (P²
/// - P - 1) d multiplications. Allocates d scalars if d > 4,000, and a copy of X if it is an expression or not
/// contiguous. `dot`, `squaredNorm`, `norm` and `φ(X).transpose() * φ(Y)` use the identity, O(d) per inner product.
/// Throws `DimensionOverflow`. Source: Symmetric Power Transformers, §4.2.
template <int P, MatrixExpression X>
[[nodiscard]] auto symmetric_power(X&& x) {
  detail::check_has_roots<scalar_t<X>>();
  return detail::make_embedding<detail::SymmetricPowerEmbedding, P>(std::forward<X>(x), P);
}

/// The symmetric power for a run-time power. Throws `InvalidPower` unless 1 ≤ p ≤ 8.
template <MatrixExpression X>
[[nodiscard]] auto symmetric_power(X&& x, int p) {
  detail::check_has_roots<scalar_t<X>>();
  return detail::make_embedding<detail::SymmetricPowerEmbedding, Dynamic>(std::forward<X>(x), p);
}

/// Whether T is a `symmetric_power` expression.
template <class T>
inline constexpr bool is_symmetric_power = false;
template <int P, class X>
inline constexpr bool is_symmetric_power<LazyExpression<detail::Embedded<detail::SymmetricPowerEmbedding, P, X>>> =
    true;

}  // namespace SYMPOW_NAMESPACE
