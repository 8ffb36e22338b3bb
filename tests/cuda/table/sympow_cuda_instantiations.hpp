// The table of SYMPOW_CUDA_INSTANTIATIONS as it is by default, for the library on the host.
#pragma once

#define SYMPOW_CUDA_TABLE(X) \
  X(1, 64, true)             \
  X(1, 128, false)           \
  X(2, 16, true)             \
  X(2, 32, true) X(2, 64, true) X(2, 128, false) X(3, 16, true) X(3, 32, false) X(4, 16, true) X(4, 32, false)
