// Launches of the kernels that every instantiation shares.
#include "../decode/copy_slots.hpp"
#include "../decode/reserve_tails.hpp"
#include "../gradient/adjoint_weights.hpp"
#include "../gradient/flows.hpp"
#include "../gradient/key_units.hpp"
#include "../gradient/passing.hpp"
#include "../gradient/peaks.hpp"
#include "../gradient/rates.hpp"
#include "../gradient/row_units.hpp"
#include "../gradient/scale_products.hpp"
#include "../levels/levels.hpp"
#include "../paths/paths.hpp"
#include "../scan/scan.hpp"
#include "../state_arrays/gauges.hpp"
#include "../state_arrays/of_arrays.hpp"
#include "../state_arrays/to_arrays.hpp"
#include "../weights/weights.hpp"
#include "launch_kernel.hpp"

namespace sympow::cuda {

using block::bf16, block::fp16;

SYMPOW_CUDA_LAUNCH(AdjointWeights)
SYMPOW_CUDA_LAUNCH(CopySlots)
SYMPOW_CUDA_LAUNCH(Flows)
SYMPOW_CUDA_LAUNCH(Gauges)
SYMPOW_CUDA_LAUNCH(KeyUnits<bf16>)
SYMPOW_CUDA_LAUNCH(KeyUnits<fp16>)
SYMPOW_CUDA_LAUNCH(KeyUnits<float>)
SYMPOW_CUDA_LAUNCH(Levels)
SYMPOW_CUDA_LAUNCH(OfArrays)
SYMPOW_CUDA_LAUNCH(Paths)
SYMPOW_CUDA_LAUNCH(Passing<bf16>)
SYMPOW_CUDA_LAUNCH(Passing<fp16>)
SYMPOW_CUDA_LAUNCH(Passing<float>)
SYMPOW_CUDA_LAUNCH(Peaks)
SYMPOW_CUDA_LAUNCH(Rates)
SYMPOW_CUDA_LAUNCH(ReserveTails)
SYMPOW_CUDA_LAUNCH(RowUnits<bf16>)
SYMPOW_CUDA_LAUNCH(RowUnits<fp16>)
SYMPOW_CUDA_LAUNCH(RowUnits<float>)
SYMPOW_CUDA_LAUNCH(ScaleProducts<bf16>)
SYMPOW_CUDA_LAUNCH(ScaleProducts<fp16>)
SYMPOW_CUDA_LAUNCH(ScaleProducts<float>)
SYMPOW_CUDA_LAUNCH(ToArrays)
SYMPOW_CUDA_LAUNCH(Weights<bf16>)
SYMPOW_CUDA_LAUNCH(Weights<fp16>)
SYMPOW_CUDA_LAUNCH(Weights<float>)
SYMPOW_CUDA_LAUNCH(Scan<bf16>)
SYMPOW_CUDA_LAUNCH(Scan<fp16>)
SYMPOW_CUDA_LAUNCH(Scan<float>)

}  // namespace sympow::cuda
