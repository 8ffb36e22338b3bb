#include "attention.hpp"
template __global__ void sympow::cuda::block::entry<sympow::cuda::Attention<sympow::cuda::block::bf16, 2, 64>>(
    const __grid_constant__ sympow::cuda::Attention<sympow::cuda::block::bf16, 2, 64>::Args);
