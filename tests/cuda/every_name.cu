// Every name of the block as nvcc compiles it.
#include "every_name.hpp"

namespace sympow::cuda::block {

template __global__ void entry<test::EveryName<bf16>>(const __grid_constant__ test::EveryName<bf16>::Args);
template __global__ void entry<test::EveryName<fp16>>(const __grid_constant__ test::EveryName<fp16>::Args);

}  // namespace sympow::cuda::block
