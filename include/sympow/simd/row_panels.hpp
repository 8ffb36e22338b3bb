// A matrix by panels of rows, for many products with it.
#pragma once

#include <sympow/core/panel.hpp>
#include <sympow/simd/product.hpp>

namespace SYMPOW_NAMESPACE::detail {

/// The rows of a matrix A for products with it: as they are, or in contiguous panels of two packets, column after
/// column. In A itself the columns of a panel lie 256 bytes or more apart, where the first cache holds few of them and
/// prefetchers follow none. A product has the same bits either way.
template <class Scalar>
class RowPanels {
 public:
  /// A as it is.
  explicit RowPanels(MatrixView<const Scalar> A) : RowPanels(A.data(), A.rows(), A.outerStride(), false) {}
  /// What `pack` has written, of so many rows and columns.
  RowPanels(const Scalar* packed, Index rows, Index cols) : RowPanels(packed, rows, cols, true) {}

  /// Writes the rows x cols numbers of A by panels.
  static RowPanels pack(Index rows, Index cols, Strided<const Scalar*> A, Scalar* packed) {
    constexpr Index columns = 16;  // of all panels at a time: A is read once, from one end to the other
    const RowPanels panels(packed, rows, cols);
    for (Index k = 0; k < cols; k += columns)
      for (Index i = 0, n = 0; i < rows; i += n) {
        n = panels.height_at(i);
        PanelProduct<Scalar>::copy(n, std::min(columns, cols - k), A.at(i, k), {packed + i * cols + k * n, 1, n});
      }
    return panels;
  }

  /// C ← A B or C += A B, with as many columns of A as B has rows.
  template <bool add, class C, class B>
  void times(C&& c, const B& b) const {
    if constexpr (products_by_blas)
      product<add>(c.middleRows(0, rows_),
                   MatrixView<const Scalar>(data_, rows_, b.rows(), is_packed_ ? rows_ : stride_), b);
    else
      times(add, c.cols(), b.rows(), strided(b), strided(c));
  }
  /// The same of B with `depth` rows and so many columns.
  void times(bool add, Index cols, Index depth, Strided<const Scalar*> B, Strided<Scalar*> C) const {
    const bool by_tiles = C.down == 1 && cols > max_unpacked_columns && 0 < depth && depth <= panel_depth && rows_ > 1;
    for (Index i = 0, n = 0; i < rows_; i += n) {
      n = height_at(i);
      if (by_tiles)
        PanelProduct<Scalar>::run(add, n, cols, depth, panel_at(i, n), B, C.at(i, 0));
      else
        product<Scalar>(add, n, cols, depth, panel_at(i, n), B, C.at(i, 0));
    }
  }

 private:
  RowPanels(const Scalar* data, Index rows, Index stride, bool is_packed)
      : data_(data), rows_(rows), stride_(stride), is_packed_(is_packed) {}
  // Rows of the panel that begins with row i: all of them where a BLAS multiplies matrices. A row alone is summed in
  // another order.
  [[nodiscard]] Index height_at(Index i) const {
    constexpr Index height = 2 * packets::lanes<Scalar>;
    const Index left = rows_ - i;
    return !is_packed_ || products_by_blas || left <= height + 1 ? left : height;
  }

  [[nodiscard]] Strided<const Scalar*> panel_at(Index i, Index n) const {
    return {data_ + (is_packed_ ? i * stride_ : i), 1, is_packed_ ? n : stride_};
  }

  const Scalar* data_;
  Index rows_, stride_;  // numbers of a packed row, or from column to column
  bool is_packed_;
};

/// Columns of products with A that pay for packing it.
inline constexpr Index columns_worth_packing = 48;

/// The panels of A for products with so many columns, packed where that pays.
template <class Scalar>
RowPanels<Scalar> row_panels(MatrixView<const Scalar> A, Index columns, Panel<Scalar>& memory) {
  if (columns < columns_worth_packing || A.rows() <= 1) return RowPanels<Scalar>(A);
  return RowPanels<Scalar>::pack(A.rows(), A.cols(), strided(A), memory(A.size()).data());
}

template <bool add, class C, class Scalar, class B>
void product(C&& c, const RowPanels<Scalar>& a, const B& b) {
  a.template times<add>(c, b);
}

}  // namespace SYMPOW_NAMESPACE::detail
