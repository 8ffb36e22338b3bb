// The sums of the rows of a matrix: the smallest kernel that is one.
#pragma once

#include <cstdint>

#include "block/block.hpp"

namespace sympow::test {

using namespace sympow::cuda::block;

/// y_i = Σ_j x_ij of a row-major m × n matrix, n a multiple of 4. A warp sums a row, a block has four.
struct RowSums {
  static constexpr int threads = 128, shared_bytes = 0, blocks_per_multiprocessor = 16;

  struct Args {
    Global<const float> x;
    Global<float> y;
    int m, n;
  };

  SYMPOW_DEVICE static void run(const Args& args) {
    const int row = block_index(0) * 4 + warp();
    if (row >= args.m) return;  // the same for all lanes
    Lanes<float> sum = 0.f;
    for (int from = 0; from < args.n; from += 128) {
      const Lanes<int> column = lane() * 4 + from;
      Lanes<float> four[4] = {0.f, 0.f, 0.f, 0.f};
      load(four, args.x, column + std::int64_t{row} * args.n, column < args.n);
      sum += (four[0] + four[1]) + (four[2] + four[3]);
    }
    SYMPOW_UNROLL
    for (int distance = 16; distance > 0; distance /= 2) sum += shuffle_xor(sum, distance);
    const Lanes<float> result[1] = {sum};
    store(args.y, lane() + row, result, lane() < 1);
  }
};

}  // namespace sympow::test
