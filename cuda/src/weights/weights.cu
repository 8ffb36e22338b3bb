// The kernel as nvcc compiles it.
#include "weights.hpp"

namespace sympow::cuda::block {

template __global__ void entry<Weights<bf16>>(const __grid_constant__ Weights<bf16>::Args);
template __global__ void entry<Weights<fp16>>(const __grid_constant__ Weights<fp16>::Args);

}  // namespace sympow::cuda::block
