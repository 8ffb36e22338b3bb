// FinishRows as nvcc compiles it.
#include "finish_rows.hpp"

namespace sympow::cuda {

#define SYMPOW_FINISH_ROWS(d)                                        \
  template __global__ void block::entry<FinishRows<block::bf16, d>>( \
      const __grid_constant__ FinishRows<block::bf16, d>::Args);     \
  template __global__ void block::entry<FinishRows<block::fp16, d>>( \
      const __grid_constant__ FinishRows<block::fp16, d>::Args);
SYMPOW_FINISH_ROWS(16)
SYMPOW_FINISH_ROWS(32)
SYMPOW_FINISH_ROWS(64)
SYMPOW_FINISH_ROWS(128)

}  // namespace sympow::cuda
