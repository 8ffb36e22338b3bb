// The symmetric power embedding φ^p: x ⊗ … ⊗ x without its repetitions.
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
      SymmetricPowerColumns<Scalar, std::size_t{P}> columns(x.rows());
      for (Index t = 0; t < x.cols(); ++t) {
        if constexpr ((Column::Flags & Eigen::DirectAccessBit) != 0 && Column::InnerStrideAtCompileTime == 1)
          columns.fill(x.col(t).data(), ColumnInMemory<Scalar>(y.col(t).data(), y.rows()));
        else
          columns.fill(x.col(t).data(), AnyColumn<Column>(y.col(t)));
      }
    }
  }
};

}  // namespace detail

/// Symmetric power embedding of every column.
///
///     φ^P(x)_α = √(P! / Π c_i(α)!) Π_l x_{α_l}   over the non-decreasing α in lexicographic order (`MultiIndices`)
///     φ^P(x)·φ^P(y) = (x·y)^P,   ‖φ^P(x)‖ = ‖x‖^P
///
/// Shapes: d × n → C(d + P - 1, P) × n, lazily; a vector gives a vector. Cost a column: one multiplication an entry of
/// every level and some for each power of each x_i, at most C(d + P, P) - 1 + (P² - P - 1) d; allocates d scalars where
/// those are more than 4,000, and a copy of X where it is an expression or its columns are not contiguous. `dot`,
/// `squaredNorm`, `norm` and `φ(X).transpose() * φ(Y)` use the identity, in O(d) an inner product. Throws
/// `DimensionOverflow`. Source: Symmetric Power Transformers, §4.2.
template <int P, MatrixExpression X>
[[nodiscard]] auto symmetric_power(X&& x) {
  return detail::embedded<detail::SymmetricPowerEmbedding, P>(std::forward<X>(x), P);
}

/// The same for a power known at run time, 1 ≤ p ≤ 8; throws `InvalidPower` for another.
template <MatrixExpression X>
[[nodiscard]] auto symmetric_power(X&& x, int p) {
  return detail::embedded<detail::SymmetricPowerEmbedding, Dynamic>(std::forward<X>(x), p);
}

/// Whether T is `symmetric_power` of something, for rules about it.
template <class T>
inline constexpr bool is_symmetric_power = false;
template <int P, class X>
inline constexpr bool is_symmetric_power<LazyExpression<detail::Embedded<detail::SymmetricPowerEmbedding, P, X>>> =
    true;

}  // namespace SYMPOW_NAMESPACE
