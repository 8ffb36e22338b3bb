// The kernel as nvcc compiles it.
#include "gemm.hpp"

namespace sympow::cuda::block {

template __global__ void entry<test::Gemm<bf16>>(const __grid_constant__ test::Gemm<bf16>::Args);
template __global__ void entry<test::Gemm<fp16>>(const __grid_constant__ test::Gemm<fp16>::Args);

}  // namespace sympow::cuda::block
