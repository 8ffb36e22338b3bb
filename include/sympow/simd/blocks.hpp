// Loops over vectors in blocks of compile-time size.
#pragma once

#include <sympow/core/concepts.hpp>

namespace SYMPOW_NAMESPACE::detail {

/// Calls f(first, count) for consecutive blocks. `count` is `Eigen::fix<block>` for full blocks; the remainder goes
/// through the `smaller` blocks, and unless these end with 1 as an `Index`. For short columns, where Eigen's loops of
/// run-time length cost more than their entries, and for loops that compilers at -O2 would go through one by one.
template <int block = 16, int... smaller, class F>
[[gnu::always_inline]] inline void for_blocks(Index size, F&& f) {
  Index first = 0;
  for (; first + block <= size; first += block) f(first, Eigen::fix<block>);
  if constexpr (sizeof...(smaller) > 0)
    for_blocks<smaller...>(size - first, [&](Index begin, auto count) { f(first + begin, count); });
  else if constexpr (block > 1)
    if (first < size) f(first, size - first);
}

/// Rows of a block, from the type of its `count`; Dynamic for the remainder.
template <class Count>
inline constexpr int block_size = Count::value;
template <>
inline constexpr int block_size<Index> = Dynamic;

/// The entries of a block, from the type of its `count`.
template <class Scalar, class Count>
using BlockOf = Eigen::Array<Scalar, block_size<Count>, 1>;

/// Σ x_i².
template <class Scalar>
Scalar squared_norm(const Scalar* x, Index size) {
  using Block = Eigen::Array<Scalar, 16, 1>;
  Block sums = Block::Zero();
  Scalar tail_sum(0);
  Index i = 0;
  for (; i + 16 <= size; i += 16) {
    const Block x_block = Block::Map(x + i);
    sums += x_block * x_block;
  }
  for (; i < size; ++i) tail_sum += x[i] * x[i];
  return sums.sum() + tail_sum;
}

/// y_i ← factor x_i; y may be x.
template <class Scalar>
void set_scaled(Scalar* y, const Scalar* x, Scalar factor, Index size) {
  using Block = Eigen::Array<Scalar, 16, 1>;
  Index i = 0;
  for (; i + 16 <= size; i += 16) Block::Map(y + i) = Block::Map(x + i) * factor;
  for (; i < size; ++i) y[i] = x[i] * factor;
}

/// y_i ← a_i (factor b_i); y may be either.
template <class Scalar>
void set_entrywise_product(Scalar* y, const Scalar* a, Scalar factor, const Scalar* b, Index size) {
  using Block = Eigen::Array<Scalar, 16, 1>;
  Index i = 0;
  for (; i + 16 <= size; i += 16) Block::Map(y + i) = Block::Map(a + i) * (Block::Map(b + i) * factor);
  for (; i < size; ++i) y[i] = a[i] * (b[i] * factor);
}

/// y_k ← a ⊙ x_k for columns k = 0 … count - 1 of n entries; column 0 is also scaled by `factor`, as above. Keeps 48
/// entries of a in registers at a time.
template <class Scalar>
void set_entrywise_products(Scalar* y, Index y_stride, const Scalar* a, Scalar factor, const Scalar* x, Index x_stride,
                            Index n, Index count) {
  using Block = Eigen::Array<Scalar, 16, 1>;
  Index i = 0;
  for (; i + 48 <= n; i += 48) {
    const Block a0 = Block::Map(a + i), a1 = Block::Map(a + i + 16), a2 = Block::Map(a + i + 32);
    Scalar* target = y + i;
    const Scalar* source = x + i;
    Block::Map(target) = a0 * (Block::Map(source) * factor);
    Block::Map(target + 16) = a1 * (Block::Map(source + 16) * factor);
    Block::Map(target + 32) = a2 * (Block::Map(source + 32) * factor);
    for (Index k = 1; k < count; ++k) {
      target += y_stride, source += x_stride;
      Block::Map(target) = a0 * Block::Map(source);
      Block::Map(target + 16) = a1 * Block::Map(source + 16);
      Block::Map(target + 32) = a2 * Block::Map(source + 32);
    }
  }
  for (Index k = 0; k < count && i < n; ++k)
    set_entrywise_product(y + k * y_stride + i, a + i, k == 0 ? factor : Scalar(1), x + k * x_stride + i, n - i);
}

/// y_i += factor x_i.
template <class Scalar>
void add_scaled(Scalar* y, const Scalar* x, Scalar factor, Index size) {
  for_blocks<16, 1>(size, [&](Index i, auto count) {
    using Block = BlockOf<Scalar, decltype(count)>;
    Block::Map(y + i) += Block::Map(x + i) * factor;
  });
}

/// y_i ← x_i / divisor.
template <class Scalar>
void set_quotients(Scalar* y, const Scalar* x, Scalar divisor, Index size) {
  for_blocks<16, 1>(size, [&](Index i, auto count) {
    using Block = BlockOf<Scalar, decltype(count)>;
    Block::Map(y + i) = Block::Map(x + i) / divisor;
  });
}

/// y_i += x_i.
template <class Scalar>
void add_entries(Scalar* y, const Scalar* x, Index size) {
  using Block = Eigen::Array<Scalar, 16, 1>;
  Index i = 0;
  for (; i + 16 <= size; i += 16) Block::Map(y + i) += Block::Map(x + i);
  for (; i < size; ++i) y[i] += x[i];
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
