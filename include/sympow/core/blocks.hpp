// Loops over vectors by blocks of a size that the compiler knows.
#pragma once

#include <sympow/core/concepts.hpp>

namespace sympow::detail {

/// f(first, count) for blocks of `size` entries, one after the other: `count` is `Eigen::fix<block>` but for what is left, an `Index`. For
/// short columns: Eigen's loops of unknown length cost more than their entries.
template <int block = 16, class F>
[[gnu::always_inline]] inline void for_blocks(Index size, F&& f) {
  Index first = 0;
  for (; first + block <= size; first += block) f(first, Eigen::fix<block>);
  if (first < size) f(first, size - first);
}

/// The rows of a block, from the type of its `count`: Dynamic for what is left.
template <class Count>
inline constexpr int block_size = Count::value;
template <>
inline constexpr int block_size<Index> = Dynamic;

/// Σ x_i².
template <class X>
auto squared_norm(const X& x) {
  constexpr int block = 16;
  using Scalar = typename X::Scalar;
  Eigen::Array<Scalar, block, 1> sums = Eigen::Array<Scalar, block, 1>::Zero();
  Scalar rest(0);
  for_blocks<block>(x.size(), [&](Index first, auto count) {
    if constexpr (std::is_same_v<decltype(count), Index>)
      rest = x.segment(first, count).squaredNorm();
    else
      sums += x.segment(first, count).array().square();
  });
  return sums.sum() + rest;
}

/// Asks for column t of x, if there is one, before it is needed.
template <bool writes = false, class X>
[[gnu::always_inline]] inline void prefetch_column(const X& x, Index t) {
  constexpr Index line = 64 / sizeof(typename X::Scalar);
  if (t >= x.cols()) return;
  const auto* const column = x.data() + t * x.outerStride();
  for (Index i = 0; i < x.rows(); i += line) __builtin_prefetch(column + i, writes);
}

}  // namespace sympow::detail
