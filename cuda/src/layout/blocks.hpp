// The blocks of a launch.
#pragma once

#include <cstdint>

namespace sympow::cuda {

/// A grid as a kernel wants it. The dimension that grows with the batch is x, the one that may be large.
struct Blocks {
  std::int64_t x;
  int y;

  /// Whether a GPU takes it.
  [[nodiscard]] constexpr bool fit() const { return x <= 0x7fffffff && y <= 0xffff; }
};

}  // namespace sympow::cuda
