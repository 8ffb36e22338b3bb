// Where the registers of a warp lie in the matrices of mma.sync.m16n8k16 and ldmatrix (PTX ISA, "Matrix Fragments for
// mma.m16n8k16"). I is int for one lane, Lanes<int> for those of a warp.
#pragma once

#if defined(__CUDACC__)
#define SYMPOW_HOST_DEVICE __host__ __device__ __forceinline__
#else
#define SYMPOW_HOST_DEVICE inline
#endif

namespace sympow::cuda::block {

/// A position in a matrix.
template <class I>
struct Position {
  I row, column;
};

/// A, 16 × 16: register r = 0 … 3 holds the entries at (row, column) and (row, column + 1).
template <class I>
SYMPOW_HOST_DEVICE constexpr Position<I> a_position(I lane, int r) {
  return {lane / 4 + r % 2 * 8, lane % 4 * 2 + r / 2 * 8};
}

/// B, 16 × 8: register r = 0, 1 holds the entries at (row, column) and (row + 1, column).
template <class I>
SYMPOW_HOST_DEVICE constexpr Position<I> b_position(I lane, int r) {
  return {lane % 4 * 2 + r * 8, lane / 4};
}

/// C and D, 16 × 8: register r = 0 … 3 holds the float at (row, column).
template <class I>
SYMPOW_HOST_DEVICE constexpr Position<I> c_position(I lane, int r) {
  return {lane / 4 + r / 2 * 8, lane % 4 * 2 + r % 2};
}

/// ldmatrix: lane 8 m + i names row i of the 8 × 8 matrix m; register m then holds its entries at (row, column) and
/// (row, column + 1), or, transposed, at (row, column) and (row + 1, column).
template <class I>
SYMPOW_HOST_DEVICE constexpr Position<I> ldmatrix_position(I lane, bool transposed) {
  return transposed ? Position<I>{lane % 4 * 2, lane / 4} : Position<I>{lane / 4, lane % 4 * 2};
}

namespace detail {

// Whether registers × lanes (× the two entries of a register, dr rows and dc columns apart) meet every entry once.
template <int rows, int columns, class Map>
consteval bool covers_once(int registers, int dr, int dc, Map position) {
  bool seen[16][16] = {};
  int met = 0;
  for (int lane = 0; lane < 32; ++lane)
    for (int r = 0; r < registers; ++r)
      for (int h = 0; h < (dr + dc == 0 ? 1 : 2); ++h, ++met) {
        const auto p = position(lane, r);
        if (p.row + h * dr >= rows || p.column + h * dc >= columns) return false;
        if (seen[p.row + h * dr][p.column + h * dc]) return false;
        seen[p.row + h * dr][p.column + h * dc] = true;
      }
  return met == rows * columns;
}
static_assert(covers_once<16, 16>(4, 0, 1, [](int lane, int r) { return a_position(lane, r); }));
static_assert(covers_once<16, 8>(2, 1, 0, [](int lane, int r) { return b_position(lane, r); }));
static_assert(covers_once<16, 8>(4, 0, 0, [](int lane, int r) { return c_position(lane, r); }));
static_assert(covers_once<8, 8>(1, 0, 1, [](int lane, int) { return ldmatrix_position(lane, false); }));
static_assert(covers_once<8, 8>(1, 1, 0, [](int lane, int) { return ldmatrix_position(lane, true); }));

}  // namespace detail

}  // namespace sympow::cuda::block
