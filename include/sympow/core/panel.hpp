// Scratch memory that only grows.
#pragma once

#include <sympow/core/resize.hpp>
#include <sympow/core/view.hpp>

namespace SYMPOW_NAMESPACE::detail {

/// Scratch memory for matrices of varying shape.
template <class Scalar>
class Panel {
 public:
  /// A rows × cols matrix, uninitialized, valid until the next call.
  MatrixView<Scalar> operator()(Index rows, Index cols) {
    if (storage_.size() < rows * cols) grow(rows * cols);
    return {storage_.data(), rows, cols};
  }

  /// The first `size` entries as a column. A later call with a size no larger keeps their values.
  ColumnView<Scalar> operator()(Index size) {
    if (storage_.size() < size) grow(size);
    return {storage_.data(), size};
  }

 private:
  [[gnu::noinline]] void grow(Index size) { resize_safely(storage_, size); }

  Vector<Scalar> storage_;
};

}  // namespace SYMPOW_NAMESPACE::detail
