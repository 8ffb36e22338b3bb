// The table of SYMPOW_CUDA_INSTANTIATIONS as it is by default, for the library on the host.
#pragma once

#define SYMPOW_CUDA_TABLE(X) X(1, 64) X(1, 128) X(2, 16) X(2, 32) X(2, 64) X(2, 128) X(3, 16) X(3, 32) X(4, 16) X(4, 32)
