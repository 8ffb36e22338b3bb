// ReadState as nvcc compiles it.
#include "read_state.hpp"

namespace sympow::cuda {

#define SYMPOW_READ_STATE(T, P, d)                                                                                   \
  template __global__ void block::entry<ReadState<T, P, d, 1>>(const __grid_constant__ ReadState<T, P, d, 1>::Args); \
  template __global__ void block::entry<ReadState<T, P, d, 8>>(const __grid_constant__ ReadState<T, P, d, 8>::Args);
#define SYMPOW_READ_STATES(T)  \
  SYMPOW_READ_STATE(T, 1, 64)  \
  SYMPOW_READ_STATE(T, 1, 128) \
  SYMPOW_READ_STATE(T, 2, 16)  \
  SYMPOW_READ_STATE(T, 2, 32)  \
  SYMPOW_READ_STATE(T, 2, 64)  \
  SYMPOW_READ_STATE(T, 2, 128) \
  SYMPOW_READ_STATE(T, 3, 16)  \
  SYMPOW_READ_STATE(T, 3, 32)  \
  SYMPOW_READ_STATE(T, 4, 16)  \
  SYMPOW_READ_STATE(T, 4, 32)
SYMPOW_READ_STATES(block::bf16)
SYMPOW_READ_STATES(block::fp16)

}  // namespace sympow::cuda
