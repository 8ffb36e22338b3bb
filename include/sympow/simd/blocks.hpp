// Loops over vectors in blocks of compile-time size.
#pragma once

#include <sympow/simd/lanes.hpp>

namespace SYMPOW_NAMESPACE::detail {

/// Calls f(first, count) for consecutive blocks. `count` is `Eigen::fix<block>` for full blocks; the remainder goes
/// through the `smaller` blocks, and then as an `Index`. For short columns, where Eigen's loops of run-time length cost
/// more than their entries, and for loops that compilers at -O2 would go through one by one.
template <int block = 16, int... smaller, class F>
[[gnu::always_inline]] inline void for_blocks(Index size, F&& f) {
  Index first = 0;
  for (; first + block <= size; first += block) f(first, Eigen::fix<block>);
  if constexpr (sizeof...(smaller) > 0)
    for_blocks<smaller...>(size - first, [&](Index begin, auto count) { f(first + begin, count); });
  else if (first < size)
    f(first, size - first);
}

/// Rows of a block, from the type of its `count`; Dynamic for the remainder.
template <class Count>
inline constexpr int block_size = Count::value;
template <>
inline constexpr int block_size<Index> = Dynamic;

/// Σ x_i².
template <class Scalar>
Scalar squared_norm(const Scalar* x, Index size) {
  auto sums = Lanes<Scalar>::all(0);
  Scalar rest(0);
  for_lanes<Scalar>(size, [&](Index i, auto tag) {
    const auto some = load_as<typename decltype(tag)::type>(x + i);
    add_to(sums, rest, some * some);
  });
  return sums.sum() + rest;
}

/// y_i ← factor x_i; y may be x.
template <class Scalar>
void set_scaled(Scalar* y, const Scalar* x, Scalar factor, Index size) {
  for_lanes<Scalar>(size,
                    [&](Index i, auto tag) { store_at(y + i, load_as<typename decltype(tag)::type>(x + i) * factor); });
}

/// y_i ← a_i (factor b_i); y may be either.
template <class Scalar>
void set_entrywise_product(Scalar* y, const Scalar* a, Scalar factor, const Scalar* b, Index size) {
  for_lanes<Scalar>(size, [&](Index i, auto tag) {
    using X = typename decltype(tag)::type;
    store_at(y + i, load_as<X>(a + i) * (load_as<X>(b + i) * factor));
  });
}

/// y_k ← a ⊙ x_k for columns k = 0 … count - 1 of n entries; column 0 is also scaled by `factor`, as above. Keeps 48
/// entries of a in registers at a time.
template <class Scalar>
void set_entrywise_products(Scalar* y, Index y_stride, const Scalar* a, Scalar factor, const Scalar* x, Index x_stride,
                            Index n, Index count) {
  using X = Lanes<Scalar>;
  Index i = 0;
  for (; i + 48 <= n; i += 48) {
    const X a0 = X::load(a + i), a1 = X::load(a + i + 16), a2 = X::load(a + i + 32);
    Scalar* to = y + i;
    const Scalar* from = x + i;
    (a0 * (X::load(from) * factor)).store(to);
    (a1 * (X::load(from + 16) * factor)).store(to + 16);
    (a2 * (X::load(from + 32) * factor)).store(to + 32);
    for (Index k = 1; k < count; ++k) {
      to += y_stride, from += x_stride;
      (a0 * X::load(from)).store(to);
      (a1 * X::load(from + 16)).store(to + 16);
      (a2 * X::load(from + 32)).store(to + 32);
    }
  }
  for (Index k = 0; k < count && i < n; ++k)
    set_entrywise_product(y + k * y_stride + i, a + i, k == 0 ? factor : Scalar(1), x + k * x_stride + i, n - i);
}

/// y_i += factor x_i.
template <class Scalar>
void add_scaled(Scalar* y, const Scalar* x, Scalar factor, Index size) {
  for_lanes<Scalar>(size, [&](Index i, auto tag) {
    using X = typename decltype(tag)::type;
    store_at(y + i, load_as<X>(y + i) + load_as<X>(x + i) * factor);
  });
}

/// y_i ← x_i / divisor.
template <class Scalar>
void set_quotients(Scalar* y, const Scalar* x, Scalar divisor, Index size) {
  for_lanes<Scalar>(size, [&](Index i, auto tag) {
    using X = typename decltype(tag)::type;
    store_at(y + i, load_as<X>(x + i) / load_all<X>(divisor));
  });
}

/// y_i += x_i.
template <class Scalar>
void add_entries(Scalar* y, const Scalar* x, Index size) {
  for_lanes<Scalar>(size, [&](Index i, auto tag) {
    using X = typename decltype(tag)::type;
    store_at(y + i, load_as<X>(y + i) + load_as<X>(x + i));
  });
}

/// x_i ← x_i y_i.
template <class Scalar, class Real>
void multiply_entries(Scalar* __restrict x, const Real* __restrict y, Index size) {
  Index i = 0;
  for (; i + 16 <= size; i += 16)
    for (Index n = 0; n < 16; ++n) x[i + n] *= static_cast<Scalar>(y[i + n]);
  for (; i < size; ++i) x[i] *= static_cast<Scalar>(y[i]);
}

/// Prefetches column t of x if it exists.
template <bool writes = false, class X>
[[gnu::always_inline]] inline void prefetch_column(const X& x, Index t) {
  constexpr Index line = 64 / sizeof(typename X::Scalar);
  if (t < 0 || t >= x.cols()) return;
  const auto* const column = x.data() + t * x.outerStride();
  for (Index i = 0; i < x.rows(); i += line) __builtin_prefetch(column + i, writes);
}

}  // namespace SYMPOW_NAMESPACE::detail
