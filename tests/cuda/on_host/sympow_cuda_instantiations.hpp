// A part of the table of SYMPOW_CUDA_INSTANTIATIONS, every power and element in it, for the library on the host.
#pragma once

#define SYMPOW_CUDA_TABLE(X) \
  X(1, 64, true) X(1, 128, false) X(2, 16, true) X(2, 32, false) X(3, 16, true) X(4, 16, true)
