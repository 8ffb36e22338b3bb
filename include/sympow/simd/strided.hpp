// Strided entries, and loops of compile-time length.
#pragma once

#include <type_traits>
#include <utility>

#include <sympow/core/concepts.hpp>

namespace SYMPOW_NAMESPACE::detail {

/// The entries of a matrix: (i, j) lies at data[i * down + j * right].
template <class Pointer>
struct Strided {
  Pointer data;
  Index down, right;

  /// A read-only view.
  operator Strided<const std::remove_pointer_t<Pointer>*>() const  // NOLINT(google-explicit-constructor)
    requires(!std::is_const_v<std::remove_pointer_t<Pointer>>)
  {
    return {data, down, right};
  }
  Strided at(Index i, Index j) const { return {data + i * down + j * right, down, right}; }
  Strided transposed() const { return {data, right, down}; }
};

/// C ← X, or C += X, for columns of X with the given stride.
template <class Scalar>
void store(bool add, Index rows, Index cols, const Scalar* X, Index stride, Strided<Scalar*> C) {
  for (Index j = 0; j < cols; ++j)
    for (Index i = 0; i < rows; ++i) {
      Scalar& entry = *C.at(i, j).data;
      entry = add ? entry + X[j * stride + i] : X[j * stride + i];
    }
}

/// f(0), …, f(n - 1) with compile-time arguments.
template <int n, class F>
[[gnu::always_inline]] inline void unrolled(F&& f) {
  [&]<int... i>(std::integer_sequence<int, i...>) __attribute__((always_inline)) {
    (f(std::integral_constant<int, i>{}), ...);
  }(std::make_integer_sequence<int, n>{});
}

}  // namespace SYMPOW_NAMESPACE::detail
