// Exception-safe resize.
#pragma once

#include <sympow/core/concepts.hpp>

namespace SYMPOW_NAMESPACE::detail {

/// Resizes x and discards its content. If the allocation throws, x is empty; Eigen's `resize` would leave a dangling
/// pointer.
template <class X>
void resize_safely(X& x, Index rows, Index cols = 1) {
  if (x.rows() == rows && x.cols() == cols) return;
  x.resize(X::RowsAtCompileTime == Dynamic ? 0 : rows, X::ColsAtCompileTime == Dynamic ? 0 : cols);
  x.resize(rows, cols);
}

}  // namespace SYMPOW_NAMESPACE::detail
