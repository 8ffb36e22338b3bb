// Other sizes for matrices that live on where memory ends.
#pragma once

#include <sympow/core/concepts.hpp>

namespace SYMPOW_NAMESPACE::detail {

/// Gives x another size; its content is lost. Where memory ends x is empty: Eigen's own `resize` would leave it with
/// memory that it has freed.
template <class X>
void resize_anew(X& x, Index rows, Index cols = 1) {
  if (x.rows() == rows && x.cols() == cols) return;
  x.resize(X::RowsAtCompileTime == Dynamic ? 0 : rows, X::ColsAtCompileTime == Dynamic ? 0 : cols);
  x.resize(rows, cols);
}

}  // namespace SYMPOW_NAMESPACE::detail
