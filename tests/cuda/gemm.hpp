// C = A B by tensor cores, with tiles brought by cp.async while others are multiplied.
#pragma once

#include <cstdint>

#include "block/block.hpp"

namespace sympow::test {

using namespace sympow::cuda::block;

/// A: m × k, B: k × n of bf16 or fp16, C: m × n of float, all row-major with rows lda, ldb, ldc entries apart. A block
/// of four warps makes a tile of 32 × 32 entries of C. Any m and k; n and ldc even, lda and ldb multiples of 8.
template <class T>
struct Gemm {
  static constexpr int tile = 32, depth = 32, stages = 3;
  static constexpr int threads = 128, blocks_per_multiprocessor = 2, shared_bytes = 2 * stages * tile * depth * 2;

  struct Args {
    Global<const T> a, b;
    Global<float> c;
    int m, n, k;
    std::int64_t lda, ldb, ldc;
  };

  /// Octet o of a row of a stage: rows of 64 bytes, octets exchanged so that eight rows of one octet meet all banks.
  template <class Row, class Octet>
  SYMPOW_DEVICE static auto place(int stage, Row row, Octet octet) {
    return (row + stage * tile) * depth + (octet ^ (row / 2 % 4)) * 8;
  }

  /// The bytes of an octet of which `left` entries exist.
  SYMPOW_DEVICE static Lanes<int> bytes(Lanes<int> left) { return where(left < 0, 0, where(left < 8, left * 2, 16)); }

  SYMPOW_DEVICE static void run(const Args& x) {
    Arena arena;
    const auto a = arena.take<T>(stages * tile * depth), b = arena.take<T>(stages * depth * tile);
    const int top = block_index(1) * tile, left = block_index(0) * tile;
    const int w = warp(), warp_row = w / 2 * 16, warp_column = w % 2 * 16;

    const auto bring = [&](int stage, int from) {
      const Lanes<int> row = lane() / 4 + w * 8, octet = lane() % 4, to = place(stage, row, octet);
      const Lanes<int> a_bytes = where(row + top < x.m, bytes(x.k - from - octet * 8), 0);
      const Lanes<int> b_bytes = where(row + from < x.k, bytes(x.n - left - octet * 8), 0);
      cp_async<16>(a, to, x.a, (row + top) * x.lda + (octet * 8 + from), a_bytes);
      cp_async<16>(b, to, x.b, (row + from) * x.ldb + (octet * 8 + left), b_bytes);
    };

    Lanes<float> sum[2][4];
    SYMPOW_UNROLL
    for (int r = 0; r < 4; ++r) sum[0][r] = sum[1][r] = 0.f;

    const int slabs = (x.k + depth - 1) / depth;
    SYMPOW_UNROLL
    for (int slab = 0; slab < stages - 1; ++slab) {
      if (slab < slabs) bring(slab, slab * depth);
      cp_async_commit();
    }
    for (int slab = 0; slab < slabs; ++slab) {
      cp_async_wait<stages - 2>();
      barrier();  // all have what they waited for, and are done with the stage that is brought next
      const int next = slab + stages - 1;
      if (next < slabs) bring(next % stages, next * depth);
      cp_async_commit();
      const int stage = slab % stages;
      SYMPOW_UNROLL
      for (int step = 0; step < depth; step += 16) {
        const Lanes<int> row = lane() % 16, second = lane() / 16;
        Lanes<Pair<T>> left_factor[4], right[4];
        ldmatrix<false>(left_factor, a, place(stage, row + warp_row, second + step / 8));
        ldmatrix<true>(right, b, place(stage, row + step, second + warp_column / 8));
        const Lanes<Pair<T>> right_0[2] = {right[0], right[1]}, right_1[2] = {right[2], right[3]};
        mma(sum[0], left_factor, right_0);
        mma(sum[1], left_factor, right_1);
      }
    }

    SYMPOW_UNROLL
    for (int n = 0; n < 2; ++n) {
      SYMPOW_UNROLL
      for (int h = 0; h < 2; ++h) {
        const auto p = c_position(lane(), 2 * h);
        const Lanes<int> row = p.row + (top + warp_row), column = p.column + (left + warp_column + 8 * n);
        const Lanes<float> two[2] = {sum[n][2 * h], sum[n][2 * h + 1]};
        store(x.c, row * x.ldc + column, two, row < x.m && column < x.n);
      }
    }
  }
};

}  // namespace sympow::test
