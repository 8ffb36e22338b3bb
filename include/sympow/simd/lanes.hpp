// Sixteen numbers in as many vector registers as they need.
#pragma once

#include <type_traits>

#include <sympow/core/concepts.hpp>
#include <sympow/simd/packed_product.hpp>

namespace SYMPOW_NAMESPACE::detail {

/// n numbers, a power of two, with arithmetic entry by entry.
template <class Scalar, int n = 16>
struct Lanes {
  using Half = Lanes<Scalar, n / 2>;
  Half low, high;

  [[gnu::always_inline]] static Lanes all(Scalar x) { return {Half::all(x), Half::all(x)}; }
  [[gnu::always_inline]] static Lanes load(const Scalar* x) { return {Half::load(x), Half::load(x + n / 2)}; }
  [[gnu::always_inline]] void store(Scalar* x) const { low.store(x), high.store(x + n / 2); }
  [[nodiscard, gnu::always_inline]] Scalar sum() const { return (low + high).sum(); }
  [[nodiscard, gnu::always_inline]] Scalar largest() const { return larger(low, high).largest(); }
  [[gnu::always_inline]] friend Lanes operator+(const Lanes& x, const Lanes& y) {
    return {x.low + y.low, x.high + y.high};
  }
  [[gnu::always_inline]] friend Lanes operator-(const Lanes& x, const Lanes& y) {
    return {x.low - y.low, x.high - y.high};
  }
  [[gnu::always_inline]] friend Lanes operator*(const Lanes& x, const Lanes& y) {
    return {x.low * y.low, x.high * y.high};
  }
  [[gnu::always_inline]] friend Lanes operator/(const Lanes& x, const Lanes& y) {
    return {x.low / y.low, x.high / y.high};
  }
  [[gnu::always_inline]] friend Lanes larger(const Lanes& x, const Lanes& y) {
    return {larger(x.low, y.low), larger(x.high, y.high)};
  }
};
template <class Scalar, int n>
  requires(n == packets::lanes<Scalar>)
struct Lanes<Scalar, n> {
  using Packet = packets::Packet<Scalar>;
  Packet packet;

  [[gnu::always_inline]] static Lanes all(Scalar x) { return {packets::pset1<Packet>(x)}; }
  [[gnu::always_inline]] static Lanes load(const Scalar* x) { return {packets::ploadu<Packet>(x)}; }
  [[gnu::always_inline]] void store(Scalar* to) const { packets::pstoreu(to, packet); }
  [[nodiscard, gnu::always_inline]] Scalar sum() const { return packets::predux(packet); }
  [[nodiscard, gnu::always_inline]] Scalar largest() const { return packets::predux_max(packet); }
  [[gnu::always_inline]] friend Lanes operator+(const Lanes& x, const Lanes& y) {
    return {packets::padd(x.packet, y.packet)};
  }
  [[gnu::always_inline]] friend Lanes operator-(const Lanes& x, const Lanes& y) {
    return {packets::psub(x.packet, y.packet)};
  }
  [[gnu::always_inline]] friend Lanes operator*(const Lanes& x, const Lanes& y) {
    return {packets::pmul(x.packet, y.packet)};
  }
  [[gnu::always_inline]] friend Lanes operator/(const Lanes& x, const Lanes& y) {
    return {packets::pdiv(x.packet, y.packet)};
  }
  [[gnu::always_inline]] friend Lanes larger(const Lanes& x, const Lanes& y) {
    return {packets::pmax(x.packet, y.packet)};
  }
};
template <class Scalar, int n>
[[gnu::always_inline]] inline Lanes<Scalar, n> operator*(const Lanes<Scalar, n>& x, Scalar y) {
  return x * Lanes<Scalar, n>::all(y);
}

/// One number, or sixteen: from memory and to it, all alike, and their sum.
template <class X, class Scalar>
[[gnu::always_inline]] inline X load_as(const Scalar* x) {
  if constexpr (std::is_same_v<X, Scalar>)
    return *x;
  else
    return X::load(x);
}
template <class X, class Scalar>
[[gnu::always_inline]] inline void store_at(Scalar* to, const X& x) {
  if constexpr (std::is_same_v<X, Scalar>)
    *to = x;
  else
    x.store(to);
}
template <class X, class Scalar>
[[gnu::always_inline]] inline X load_all(Scalar x) {
  if constexpr (std::is_same_v<X, Scalar>)
    return x;
  else
    return X::all(x);
}
template <class X>
[[gnu::always_inline]] inline auto sum_of(const X& x) {
  if constexpr (std::is_floating_point_v<X>)
    return x;
  else
    return x.sum();
}

/// Adds to one of two sums: what is one number to `rest`.
template <class Scalar>
[[gnu::always_inline]] inline void add_to(Lanes<Scalar>& sums, Scalar&, const Lanes<Scalar>& x) {
  sums = sums + x;
}
template <class Scalar>
[[gnu::always_inline]] inline void add_to(Lanes<Scalar>&, Scalar& rest, Scalar x) {
  rest += x;
}

/// f(i, tag) for n numbers: for sixteen from i on, the type of the tag then `Lanes<Scalar>`, and for the last ones each
/// by itself, the type then `Scalar`.
template <class Scalar, class F>
[[gnu::always_inline]] inline void for_lanes(Index n, F&& f) {
  Index i = 0;
  for (; i + 16 <= n; i += 16) f(i, std::type_identity<Lanes<Scalar>>());
  for (; i < n; ++i) f(i, std::type_identity<Scalar>());
}

}  // namespace SYMPOW_NAMESPACE::detail
