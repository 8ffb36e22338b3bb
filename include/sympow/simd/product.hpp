// Matrix products by short sums, without heap memory.
#pragma once

#include <algorithm>
#include <type_traits>

#include <sympow/simd/column_product.hpp>

namespace SYMPOW_NAMESPACE::detail {

/// Whether Eigen's external BLAS computes products; it then determines the lengths of sums.
#ifdef EIGEN_USE_BLAS
inline constexpr bool products_by_blas = true;
#else
inline constexpr bool products_by_blas = false;
#endif

/// Up to this number of columns, a product column by column is faster than one with a packed copy of the matrix.
inline constexpr Index max_unpacked_columns = 8;

/// The entries of an expression in memory.
template <class X>
auto strided(X& x) {
  constexpr bool by_row = std::remove_const_t<X>::IsRowMajor;
  const Index inner = x.innerStride(), outer = x.outerStride();
  return Strided<decltype(x.data())>{x.data(), by_row ? outer : inner, by_row ? inner : outer};
}

/// aᵀ b of contiguous entries, in short sums of packets.
template <class Scalar>
[[gnu::noinline]] Scalar dot_product(const Scalar* a, const Scalar* b, Index size) {
  constexpr Index block_length = ColumnProduct<Scalar>::dot_depth;
  if (size <= block_length) return ColumnProduct<Scalar>::dot(size, a, b);
  Index stride = block_length;
  while (stride * short_sum < size) stride *= short_sum;
  Scalar sum(0);
  for (Index k = 0; k < size; k += stride) sum += dot_product(a + k, b + k, std::min(stride, size - k));
  return sum;
}

/// c ← A b, or c += A b in one addition, at any depth, for contiguous rows of A.
template <class Scalar>
[[gnu::noinline]] void multiply_rows(bool add, Index rows, Index depth, Strided<const Scalar*> A, const Scalar* b,
                                     Strided<Scalar*> c) {
  ColumnProduct<Scalar>::dot_rows(add, rows, depth, A, b, c);
}

template <class Scalar>
void multiply_deep(bool add, Index rows, Index cols, Index depth, Strided<const Scalar*> A, Strided<const Scalar*> B,
                   Strided<Scalar*> C);

/// C ← A B, or C += A B in one addition, at any depth.
template <class Scalar>
[[gnu::noinline]] void multiply(bool add, Index rows, Index cols, Index depth, Strided<const Scalar*> A,
                                Strided<const Scalar*> B, Strided<Scalar*> C) {
  if (A.down == 1 && B.down == 1 && C.down == 1 && cols <= max_unpacked_columns) {
    for (Index j = 0; j < cols; ++j)
      ColumnProduct<Scalar>::times_column(add, rows, depth, DenseColumns<Scalar>{A.data, A.right}, B.at(0, j).data,
                                          C.at(0, j).data);
  } else if (depth <= panel_depth) {
    PanelProduct<Scalar>::run(add, rows, cols, depth, A, B, C);
  } else {
    multiply_deep(add, rows, cols, depth, A, B, C);
  }
}

/// The same by sums of sums. Not inlined: its tiles are half of the stack that a thread needs.
template <class Scalar>
[[gnu::noinline]] void multiply_deep(bool add, Index rows, Index cols, Index depth, Strided<const Scalar*> A,
                                     Strided<const Scalar*> B, Strided<Scalar*> C) {
  constexpr Index most_rows = 64, most_cols = 288 / sizeof(Scalar);  // of a tile on the stack: 18 KiB
  Index stride = panel_depth;
  while (stride * short_sum < depth) stride *= short_sum;
  for (Index j = 0; j < cols; j += most_cols)
    for (Index i = 0; i < rows; i += most_rows) {
      const Index height = std::min(most_rows, rows - i), width = std::min(most_cols, cols - j);
      Scalar sums[size_of(most_rows * most_cols)];
      for (Index k = 0; k < depth; k += stride)
        multiply(k > 0, height, width, std::min(stride, depth - k), A.at(i, k), B.at(k, j),
                 Strided<Scalar*>{sums, 1, height});
      store<Scalar>(add, height, width, sums, height, C.at(i, j));
    }
}

/// C ← A B, or C += A B in one addition. C overlaps neither factor.
template <class Scalar>
[[gnu::noinline]] void product(bool add, Index rows, Index cols, Index depth, Strided<const Scalar*> A,
                               Strided<const Scalar*> B, Strided<Scalar*> C) {
  if (rows == 0 || cols == 0) return;  // empty matrices have no memory
  if (depth == 0) {
    for (Index j = 0; j < cols && !add; ++j)
      for (Index i = 0; i < rows; ++i) *C.at(i, j).data = Scalar(0);
  } else if ((rows == 1 || cols == 1) && A.right == 1 && B.down == 1) {
    if (cols == 1)
      multiply_rows<Scalar>(add, rows, depth, A, B.data, C);
    else
      multiply_rows<Scalar>(add, cols, depth, B.transposed(), A.data, C.transposed());
  } else {
    multiply<Scalar>(add, rows, cols, depth, A, B, C);
  }
}
template <bool add, class C, class A, class B>
void product(C&& c, const A& a, const B& b) {
  using Scalar = typename std::remove_cvref_t<C>::Scalar;
  if constexpr (products_by_blas) {
    if (a.cols() == 0 && add) return;
    if constexpr (add)
      c.noalias() += a * b;
    else
      c.noalias() = a * b;
  } else {
    product<Scalar>(add, c.rows(), c.cols(), a.cols(), strided(a), strided(b), strided(c));
  }
}

/// C += A B in one addition.
template <class C, class A, class B>
void add_product(C&& c, const A& a, const B& b) {
  product<true>(c, a, b);
}

/// C ← A B.
template <class C, class A, class B>
void set_product(C&& c, const A& a, const B& b) {
  product<false>(c, a, b);
}

/// C(j, i) ← a_j · b_i for j ≤ i, with columns of A and B; entries below the diagonal are unspecified.
template <class C, class A, class B>
void set_causal_product(C&& c, const A& a, const B& b) {
  constexpr Index group = 16, tile = 12;
  for (Index j = 0, size = 0; j < a.cols(); j += size) {
    const Index left = a.cols() - j, i = j - j % tile, width = b.cols() - i;
    size = left <= group + 1 ? left : group;  // a single row would be summed in another order
    set_product(c.block(j, i, size, width), a.middleCols(j, size).transpose(), b.rightCols(width));
  }
}

/// C ← A for expressions in memory, one of them possibly transposed.
template <class C, class A>
void set_copy(C&& c, const A& a) {
  using Scalar = typename std::remove_cvref_t<C>::Scalar;
  const auto source = strided(a);
  PanelProduct<Scalar>::copy(c.rows(), c.cols(), {source.data, source.down, source.right}, strided(c));
}

}  // namespace SYMPOW_NAMESPACE::detail

/// The products of a scalar type, compiled in one place; LINKAGE is `extern` where that is another file.
#define SYMPOW_PRODUCTS(LINKAGE, S)                                                                                  \
  namespace sympow::detail {                                                                                         \
  LINKAGE template S dot_product(const S*, const S*, Index);                                                         \
  LINKAGE template void multiply_rows(bool, Index, Index, Strided<const S*>, const S*, Strided<S*>);                 \
  LINKAGE template void multiply(bool, Index, Index, Index, Strided<const S*>, Strided<const S*>, Strided<S*>);      \
  LINKAGE template void multiply_deep(bool, Index, Index, Index, Strided<const S*>, Strided<const S*>, Strided<S*>); \
  LINKAGE template void product(bool, Index, Index, Index, Strided<const S*>, Strided<const S*>, Strided<S*>);       \
  LINKAGE template void PanelProduct<S>::run(bool, Index, Index, Index, Strided<const S*>, Strided<const S*>,        \
                                             Strided<S*>);                                                           \
  LINKAGE template void PanelProduct<S>::copy(Index, Index, Strided<const S*>, Strided<S*>);                         \
  LINKAGE template void ColumnProduct<S>::times_column(bool, Index, Index, DenseColumns<S>, const S*, S*);           \
  }

#ifdef SYMPOW_COMPILED_FORMS
SYMPOW_PRODUCTS(extern, float)
SYMPOW_PRODUCTS(extern, double)
#endif
