// Matrix products that ask for no memory.
#pragma once

#include <algorithm>
#include <type_traits>

#include <sympow/core/concepts.hpp>

namespace sympow::detail {

/// C += A B by blocks. Eigen's product packs its operands into buffers, on the stack up to EIGEN_STACK_ALLOCATION_LIMIT bytes each and
/// beyond it on the heap: blocks are as large as the stack allows, but that the depth is at most 256, from where on it costs nothing.
template <class C, class A, class B>
void add_product(C&& c, const A& a, const B& b) {
  using Scalar = typename std::remove_cvref_t<C>::Scalar;
  constexpr Index room = EIGEN_STACK_ALLOCATION_LIMIT / static_cast<Index>(sizeof(Scalar)), deepest = 256;
  const Index depth = std::min(a.cols(), deepest);
  const Index side = depth > 0 && room / depth > 0 ? room / depth : std::max(c.rows(), c.cols());
  for (Index k = 0; k < a.cols(); k += depth)
    for (Index j = 0; j < c.cols(); j += side)
      for (Index i = 0; i < c.rows(); i += side) {
        const Index m = std::min(side, c.rows() - i), n = std::min(side, c.cols() - j),
                    p = std::min(depth, a.cols() - k);
        c.block(i, j, m, n).noalias() += a.block(i, k, m, p) * b.block(k, j, p, n);
      }
}

/// C ← A B, likewise.
template <class C, class A, class B>
void set_product(C&& c, const A& a, const B& b) {
  c.setZero();
  add_product(c, a, b);
}

}  // namespace sympow::detail
