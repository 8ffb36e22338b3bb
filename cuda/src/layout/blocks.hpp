// The grid of a launch.
#pragma once

#include <cstdint>

namespace sympow::cuda {

/// Blocks of a kernel along three axes. The one that grows with the batch is x, which may be large.
struct Blocks {
  std::int64_t x = 1;
  int y = 1, z = 1;

  /// Whether a GPU takes it.
  [[nodiscard]] constexpr bool fit() const { return x <= 0x7fffffff && y <= 0xffff && z <= 0xffff; }
};

}  // namespace sympow::cuda
