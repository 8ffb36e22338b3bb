// The kernel as nvcc compiles it.
#include "levels.hpp"

namespace sympow::cuda::block {

template __global__ void entry<Levels>(const __grid_constant__ Levels::Args);

}  // namespace sympow::cuda::block
