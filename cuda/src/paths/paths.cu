// The kernel as nvcc compiles it.
#include "paths.hpp"

namespace sympow::cuda::block {

template __global__ void entry<Paths>(const __grid_constant__ Paths::Args);

}  // namespace sympow::cuda::block
