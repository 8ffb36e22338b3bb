// A factor that is kept to twice the digits of the numbers it multiplies.
#pragma once

#include <algorithm>

#include <sympow/core/packed_product.hpp>

namespace SYMPOW_NAMESPACE::detail {

/// factor = high + low. A γ near 1 that is rounded to one scalar would drift by itself, fold after fold.
template <class Scalar>
struct TwoPartFactor {
  explicit TwoPartFactor(double factor) : high(static_cast<Scalar>(factor)), low(static_cast<Scalar>(factor - high)) {}
  Scalar high, low;

  /// x ← factor x of n numbers; a factor of 0 leaves 0 of whatever there is.
  void multiply(Scalar* x, Index n) const {
    using namespace packets;
    if (high == Scalar(0)) return std::fill_n(x, n, Scalar(0)), void();
    const Packet first = pset1<Packet>(high), second = pset1<Packet>(low);
    for_packets(x, x, n, [&](Scalar* to, const Scalar*) __attribute__((always_inline)) {
      const Packet some = ploadu<Packet>(to);
      pstoreu(to, pmadd(some, first, pmul(some, second)));
    });
  }
  /// x ← own x + factor y.
  void add(Scalar* x, Scalar own, const Scalar* y, Index n) const {
    using namespace packets;
    const Packet first = pset1<Packet>(high), second = pset1<Packet>(low), of_own = pset1<Packet>(own);
    for_packets(x, y, n, [&](Scalar* to, const Scalar* from) __attribute__((always_inline)) {
      const Packet some = ploadu<Packet>(from);
      pstoreu(to, pmadd(some, second, pmadd(some, first, pmul(ploadu<Packet>(to), of_own))));
    });
  }

 private:
  using Packet = packets::Packet<Scalar>;

  // f(x, y) for packets, the last one filled up: a number has the same bits wherever it lies, as no compiler chooses
  // which of two products it fuses with their sum.
  template <class F>
  [[gnu::always_inline]] static void for_packets(Scalar* x, const Scalar* y, Index n, const F& f) {
    constexpr int lanes = packets::lanes<Scalar>;
    Index i = 0;
    for (; i + lanes <= n; i += lanes) f(x + i, y + i);
    if (i == n) return;
    alignas(64) Scalar last[size_of(lanes)] = {}, others[size_of(lanes)] = {};
    std::copy_n(x + i, n - i, last);
    std::copy_n(y + i, n - i, others);
    f(last, others);
    std::copy_n(last, n - i, x + i);
  }
};

}  // namespace SYMPOW_NAMESPACE::detail
