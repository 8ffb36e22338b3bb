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
    using Block = Eigen::Array<Scalar, 16, 1>;
    Index i = 0;
    for (; i + 16 <= n; i += 16) {
      const Block some = Block::Map(x + i);
      Block::Map(x + i) = some * high + some * low;
    }
    for (; i < n; ++i) x[i] = x[i] * high + x[i] * low;
  }
  /// x ← own x + factor y.
  void add(Scalar* x, Scalar own, const Scalar* y, Index n) const {
    using Block = Eigen::Array<Scalar, 16, 1>;
    Index i = 0;
    for (; i + 16 <= n; i += 16) {
      const Block some = Block::Map(y + i);
      Block::Map(x + i) = Block::Map(x + i) * own + some * high + some * low;
    }
    for (; i < n; ++i) x[i] = x[i] * own + y[i] * high + y[i] * low;
  }
};

}  // namespace SYMPOW_NAMESPACE::detail
