// Loads that are on their way while others are used.
#pragma once

#include <cstddef>

#include "../block/block.hpp"

namespace sympow::cuda {

/// Items 0 … count - 1 of N entries a lane, up to `depth` of them on their way: bring(n, item) loads item n,
/// take(n, item) uses it. Both are called for up to 2 depth items beyond the last, too, where no lane must be active.
/// An item that no lane brought is 0, or an older one.
template <int depth, class T, std::size_t N>
struct Ring {
  block::Lanes<T> item[std::size_t{depth}][N];

  template <class Bring>
  SYMPOW_DEVICE void start(const Bring& bring) {
    SYMPOW_UNROLL
    for (int n = 0; n < depth; ++n) {
      SYMPOW_UNROLL
      for (std::size_t r = 0; r < N; ++r) item[n][r] = T{};
      bring(n, item[n]);
    }
  }
  template <class Bring, class Take>
  SYMPOW_DEVICE void run(int count, const Bring& bring, const Take& take) {
    SYMPOW_ROLL
    for (int from = 0; from < count; from += depth) {
      SYMPOW_UNROLL
      for (int n = 0; n < depth; ++n) {
        take(from + n, item[n]);
        bring(from + n + depth, item[n]);
      }
    }
  }
};

}  // namespace sympow::cuda
