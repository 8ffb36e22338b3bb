// The kernel as nvcc compiles it.
#include "row_sums.hpp"

namespace sympow::cuda::block {

template __global__ void entry<test::RowSums>(const __grid_constant__ test::RowSums::Args);

}  // namespace sympow::cuda::block
