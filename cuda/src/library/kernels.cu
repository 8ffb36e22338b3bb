// Launches of the kernels that every instantiation shares.
#include "../levels/levels.hpp"
#include "../paths/paths.hpp"
#include "../scan/scan.hpp"
#include "../weights/weights.hpp"
#include "launch_kernel.hpp"

namespace sympow::cuda {

using block::bf16, block::fp16;

SYMPOW_CUDA_LAUNCH(Levels)
SYMPOW_CUDA_LAUNCH(Paths)
SYMPOW_CUDA_LAUNCH(Weights<bf16>)
SYMPOW_CUDA_LAUNCH(Weights<fp16>)
SYMPOW_CUDA_LAUNCH(Weights<float>)
SYMPOW_CUDA_LAUNCH(Scan<bf16>)
SYMPOW_CUDA_LAUNCH(Scan<fp16>)
SYMPOW_CUDA_LAUNCH(Scan<float>)

}  // namespace sympow::cuda
