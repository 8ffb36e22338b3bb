// FinishRows as nvcc compiles it.
#include "finish_rows.hpp"

namespace sympow::cuda {

template __global__ void block::entry<FinishRows<block::bf16>>(const __grid_constant__ FinishRows<block::bf16>::Args);
template __global__ void block::entry<FinishRows<block::fp16>>(const __grid_constant__ FinishRows<block::fp16>::Args);

}  // namespace sympow::cuda
