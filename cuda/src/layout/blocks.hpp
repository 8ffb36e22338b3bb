// The grid of a launch.
#pragma once

namespace sympow::cuda {

/// Blocks of a kernel along three axes; y and z at most 65535.
struct Blocks {
  int x = 1, y = 1, z = 1;
};

}  // namespace sympow::cuda
