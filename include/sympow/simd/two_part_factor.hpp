// A factor with twice the precision of the numbers it multiplies.
#pragma once

#include <algorithm>

#include <sympow/simd/packed_product.hpp>

namespace SYMPOW_NAMESPACE::detail {

/// factor = high + low. Rounding a γ near 1 to one scalar would accumulate a drift over the folds.
template <class Scalar>
struct TwoPartFactor {
  explicit TwoPartFactor(double factor) : high(static_cast<Scalar>(factor)), low(static_cast<Scalar>(factor - high)) {}
  Scalar high, low;

  /// x ← factor x for n entries; a factor of 0 gives 0 even for NaN and infinity. By packets, the last one padded: a
  /// result does not depend on its position, since no compiler chooses which of two products to fuse with their sum.
  void multiply(Scalar* x, Index n) const {
    using namespace packets;
    using Packet = packets::Packet<Scalar>;
    if (high == Scalar(0)) return std::fill_n(x, n, Scalar(0)), void();
    const Packet first = pset1<Packet>(high), second = pset1<Packet>(low);
    const auto multiply_packet = [&](Scalar* to) __attribute__((always_inline)) {
      const Packet packet = ploadu<Packet>(to);
      pstoreu(to, pmadd(packet, first, pmul(packet, second)));
    };
    constexpr int lanes = packets::lanes<Scalar>;
    Index i = 0;
    for (; i + lanes <= n; i += lanes) multiply_packet(x + i);
    if (i == n) return;
    alignas(64) Scalar last[size_of(lanes)] = {};
    std::copy_n(x + i, n - i, last);
    multiply_packet(last);
    std::copy_n(last, n - i, x + i);
  }
};

}  // namespace SYMPOW_NAMESPACE::detail
