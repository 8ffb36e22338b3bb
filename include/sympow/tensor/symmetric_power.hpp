// The symmetric power embedding φ^p: x ⊗ … ⊗ x without its repetitions.
#pragma once

#include <array>
#include <vector>

#include <sympow/core/product.hpp>
#include <sympow/tensor/power_embedding.hpp>
#include <sympow/tensor/symmetric_power_tree.hpp>

namespace sympow {
namespace detail {

/// Room for n scalars, on the stack up to 1,024 of them.
template <class Scalar>
class Scratch {
 public:
  explicit Scratch(Index n) : heap_(n > inline_size ? static_cast<std::size_t>(n) : 0) {}
  Scalar* data() { return heap_.empty() ? inline_.data() : heap_.data(); }

 private:
  static constexpr Index inline_size = 1024;
  std::array<Scalar, inline_size> inline_;
  std::vector<Scalar> heap_;
};

struct SymmetricPowerEmbedding {
  static constexpr Index dimension(Index d, int p) { return symmetric_dimension(d, p); }

  /// Columns of a batch by the handful, each entry of all of them at once; returns how many, all but the last few. The same values as of
  /// one column after the other.
  template <int P, class Source, class Target>
    requires(P > 2 && (Target::Flags & Eigen::DirectAccessBit) != 0 && !Target::IsRowMajor)
  static Index fill_some(const Source& x, Target& y) {
    using Scalar = typename Source::Scalar;
    constexpr Index together = 64, width = 64;
    const Index whole = x.cols() / together * together;
    if (whole == 0) return 0;
    Scratch<Scalar> tokens(together * x.rows()), entries(together * width), paths(together * (P - 1));
    Eigen::Map<Matrix<Scalar>> rows(tokens.data(), together, x.rows()), panel(entries.data(), together, width),
        prefixes(paths.data(), together, P - 1);
    for (Index t = 0; t < whole; t += together) {
      set_copy(rows, x.middleCols(t, together).transpose());
      const auto store = [&](Index first, const auto& features) {
        set_copy(y.block(first, t, features.cols(), together), features.transpose());
      };
      SymmetricPowerPanels<P, decltype(rows), decltype(panel), decltype(store)>(rows, panel, prefixes, store);
    }
    return whole;
  }

  template <int P, class Source, class Target>
  static void fill(const Source& x, Target y) {
    if constexpr (P == 1) {
      y = x;
    } else {
      Scratch<typename Source::Scalar> scratch((P - 1) * x.size());
      SymmetricPowerColumn<P, Source, Target>(x, y, scratch.data());
    }
  }
};

}  // namespace detail

/// Symmetric power embedding of every column.
///
///     φ^P(x)_α = √(P! / Π c_i(α)!) Π_l x_{α_l}   over the non-decreasing α in lexicographic order (`MultiIndices`)
///     φ^P(x)·φ^P(y) = (x·y)^P,   ‖φ^P(x)‖ = ‖x‖^P
///
/// Shapes: d × n → C(d + P - 1, P) × n, lazily; a vector gives a vector. Cost: one multiplication per entry of every level,
/// C(d + P, P) - 1 + (P - 1) d a column; allocates (P - 1) d scalars a column where those are more than 1,024, 64 (d + P + 63) for a batch
/// of 64 columns or more and P > 2, and a copy of X where it is an expression or its columns are not contiguous.
/// `dot`, `squaredNorm`, `norm` and `φ(X).transpose() * φ(Y)` use the identity, in O(d) an inner product. Throws
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

}  // namespace sympow
