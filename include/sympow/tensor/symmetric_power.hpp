// The symmetric power embedding φ^p: x ⊗ … ⊗ x without its repetitions.
#pragma once

#include <array>
#include <cmath>
#include <vector>

#include <sympow/tensor/power_embedding.hpp>

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

/// Fills φ^P(x) in order. The entry of α with counts c is √(P!/Π c_i!) Π x_{α_l}: starting from √P!, appending index i
/// multiplies by x_i, or by x_i/√r where it makes a run of length r. One multiplication per node of the tree of prefixes,
/// C(d + P, P) - 1 in all, and (P - 1) d for the table of x_i/√r.
template <int P, class Source, class Target>
class SymmetricPowerFill {
  using Scalar = typename Source::Scalar;

 public:
  SymmetricPowerFill(const Source& x, Target& y, Scalar* scratch) : x_(x), y_(y), repeated_(scratch, x.size(), P - 1) {
    for (int r = 2; r <= P; ++r) repeated_.col(r - 2) = x_ * Scalar(1 / std::sqrt(static_cast<double>(r)));
    const auto root = static_cast<Scalar>(std::sqrt(static_cast<double>(factorial(P))));
    for (Index i = 0; i < x_.size(); ++i) extend<P - 1>(root * x_[i], i, 1);
  }

 private:
  // Writes every completion, by `Left` further indices, of the prefix that ends in a run of `run` times `last`.
  template <int Left>
  void extend(const Scalar& prefix, Index last, int run) {
    const Scalar repeat = prefix * repeated_(last, run - 1);
    const Index larger = x_.size() - last - 1;
    if constexpr (Left == 1) {
      y_[position_] = repeat;
      y_.segment(position_ + 1, larger) = prefix * x_.tail(larger);
      position_ += 1 + larger;
    } else {
      extend<Left - 1>(repeat, last, run + 1);
      for (Index i = last + 1; i < x_.size(); ++i) extend<Left - 1>(prefix * x_[i], i, 1);
    }
  }

  const Source& x_;
  Target& y_;
  Eigen::Map<Matrix<Scalar>> repeated_;  // x_i / √r in column r - 2
  Index position_ = 0;
};

struct SymmetricPowerEmbedding {
  static constexpr Index dimension(Index d, int p) { return symmetric_dimension(d, p); }

  template <int P, class Source, class Target>
  static void fill(const Source& x, Target y) {
    if constexpr (P == 1) {
      y = x;
    } else {
      Scratch<typename Source::Scalar> scratch((P - 1) * x.size());
      SymmetricPowerFill<P, Source, Target>(x, y, scratch.data());
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
/// C(d + P, P) - 1 + (P - 1) d a column; allocates (P - 1) d scalars a column where those are more than 1,024, and a copy of X
/// where it is an expression or its columns are not contiguous.
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
