// Matrix products by short sums, which ask for no memory.
#pragma once

#include <algorithm>
#include <type_traits>

#include <sympow/core/concepts.hpp>

namespace sympow::detail {

/// Terms that are added one after the other. Where n terms are alike every addition rounds the same way, and their sum is off by up to
/// n u / 3; short sums of short sums are off by 5 u a level. Products of this depth run at .8 of the rate of deep ones.
inline constexpr Index short_sum = 16;

/// Products are made in tiles of at most this many rows and columns, small enough for the stack and the nearest cache.
inline constexpr Index tile_side = 64;

/// Depths that Eigen adds to C one after the other at most: a row adds up in packets.
template <class C>
Index smallest_stride(const C& c) {
  return c.rows() == 1 && c.cols() > 1 ? 4 * short_sum : short_sum;
}

/// Whether Eigen makes short sums of this depth itself: of a matrix with a vector, where there are 128 columns.
template <class C>
bool sums_itself(const C& c, Index depth) {
  return c.cols() == 1 && c.rows() > 1 && depth == short_sum * short_sum;
}

/// C += A B for the depths from `begin` to `end`, `stride` of them at a time.
template <class C, class A, class B>
void add_depths(C&& c, const A& a, const B& b, Index begin, Index end, Index stride) {
  using Scalar = typename std::remove_cvref_t<C>::Scalar;
  const Index step = sums_itself(c, end - begin) ? end - begin : stride;
  const bool at_once = step > stride || stride == smallest_stride(c);
  for (Index k = begin; k < end; k += step) {
    const Index p = std::min(step, end - k);
    if (!at_once) {
      Scalar memory[tile_side * tile_side];
      Eigen::Map<Matrix<Scalar>> part(memory, c.rows(), c.cols());
      part.setZero();
      add_depths(part, a, b, k, k + p, stride / short_sum);
      c += part;
    } else if (c.size() == 1) {
      c(0, 0) += a.row(0).segment(k, p).transpose().cwiseProduct(b.col(0).segment(k, p)).sum();
    } else {
      c.noalias() += a.middleCols(k, p) * b.middleRows(k, p);
    }
  }
}

/// C ← A B, or C += A B in one addition.
template <bool add, class C, class A, class B>
void product_by_tiles(C&& c, const A& a, const B& b) {
  const Index depth = a.cols();
  if constexpr (!add) c.setZero();
  if (depth == 0) return;  // its factors have no memory to take blocks of
  for (Index j = 0; j < c.cols(); j += tile_side)
    for (Index i = 0; i < c.rows(); i += tile_side) {
      auto tile = c.block(i, j, std::min(tile_side, c.rows() - i), std::min(tile_side, c.cols() - j));
      Index stride = smallest_stride(tile);
      while (stride * (add ? 1 : short_sum) < depth) stride *= short_sum;
      add_depths(tile, a.middleRows(i, tile.rows()), b.middleCols(j, tile.cols()), 0, depth, stride);
    }
}

/// C += A B, in one addition to what is there.
template <class C, class A, class B>
void add_product(C&& c, const A& a, const B& b) {
  product_by_tiles<true>(c, a, b);
}

/// C ← A B.
template <class C, class A, class B>
void set_product(C&& c, const A& a, const B& b) {
  product_by_tiles<false>(c, a, b);
}

}  // namespace sympow::detail
