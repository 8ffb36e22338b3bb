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

  /// x ← factor x for n entries; a factor of 0 gives 0 even for NaN and infinity.
  void multiply(Scalar* x, Index n) const {
    using namespace packets;
    if (high == Scalar(0)) return std::fill_n(x, n, Scalar(0)), void();
    const Packet first = pset1<Packet>(high), second = pset1<Packet>(low);
    for_packets(x, x, n, [&](Scalar* to, const Scalar*) __attribute__((always_inline)) {
      const Packet packet = ploadu<Packet>(to);
      pstoreu(to, pmadd(packet, first, pmul(packet, second)));
    });
  }
  /// x ← x_factor x + factor y.
  void add(Scalar* x, Scalar x_factor, const Scalar* y, Index n) const {
    using namespace packets;
    const Packet first = pset1<Packet>(high), second = pset1<Packet>(low), x_factors = pset1<Packet>(x_factor);
    for_packets(x, y, n, [&](Scalar* to, const Scalar* from) __attribute__((always_inline)) {
      const Packet packet = ploadu<Packet>(from);
      pstoreu(to, pmadd(packet, second, pmadd(packet, first, pmul(ploadu<Packet>(to), x_factors))));
    });
  }

 private:
  using Packet = packets::Packet<Scalar>;

  // f(x, y) by packets, the last one padded. A result does not depend on its position, since no compiler chooses which
  // of two products to fuse with their sum.
  template <class F>
  [[gnu::always_inline]] static void for_packets(Scalar* x, const Scalar* y, Index n, const F& f) {
    constexpr int lanes = packets::lanes<Scalar>;
    Index i = 0;
    for (; i + lanes <= n; i += lanes) f(x + i, y + i);
    if (i == n) return;
    alignas(64) Scalar x_last[size_of(lanes)] = {}, y_last[size_of(lanes)] = {};
    std::copy_n(x + i, n - i, x_last);
    std::copy_n(y + i, n - i, y_last);
    f(x_last, y_last);
    std::copy_n(x_last, n - i, x + i);
  }
};

}  // namespace SYMPOW_NAMESPACE::detail
