// A factor that is kept to twice the digits of the numbers it multiplies.
#pragma once

#include <algorithm>

#include <sympow/core/concepts.hpp>

namespace SYMPOW_NAMESPACE::detail {

/// factor = high + low. A γ near 1 that is rounded to one scalar would drift by itself, fold after fold.
template <class Scalar>
struct TwoPartFactor {
  explicit TwoPartFactor(double factor) : high(static_cast<Scalar>(factor)), low(static_cast<Scalar>(factor - high)) {}
  Scalar high, low;

  /// x ← factor x of n numbers; a factor of 0 leaves 0 of whatever there is.
  void multiply(Scalar* x, Index n) const {
    if (high == Scalar(0)) return std::fill_n(x, n, Scalar(0)), void();
    for_blocks(x, x, n, [&](const Block& ours, const Block&) -> Block { return ours * high + ours * low; });
  }
  /// x ← own x + factor y.
  void add(Scalar* x, Scalar own, const Scalar* y, Index n) const {
    for_blocks(x, y, n, [&](const Block& ours, const Block& theirs) -> Block {
      return ours * own + theirs * high + theirs * low;
    });
  }

 private:
  using Block = Eigen::Array<Scalar, 16, 1>;

  // x ← f(x, y) by blocks, what is left as a part of one: a sum of products that is rounded once may be another one
  // where a compiler makes it of single numbers.
  template <class F>
  [[gnu::always_inline]] static void for_blocks(Scalar* x, const Scalar* y, Index n, const F& f) {
    Index i = 0;
    for (; i + 16 <= n; i += 16) Block::Map(x + i) = f(Block::Map(x + i), Block::Map(y + i));
    if (i == n) return;
    Block ours = Block::Zero(), theirs = Block::Zero();
    std::copy_n(x + i, n - i, ours.data());
    std::copy_n(y + i, n - i, theirs.data());
    ours = f(ours, theirs);
    std::copy_n(ours.data(), n - i, x + i);
  }
};

}  // namespace SYMPOW_NAMESPACE::detail
