// The kernel as nvcc compiles it.
#include "scan.hpp"

namespace sympow::cuda::block {

template __global__ void entry<Scan<bf16>>(const __grid_constant__ Scan<bf16>::Args);
template __global__ void entry<Scan<fp16>>(const __grid_constant__ Scan<fp16>::Args);

}  // namespace sympow::cuda::block
