// Which device runs a kernel for Hopper.
#pragma once

#include "launch.hpp"

namespace sympow::cuda::library {

/// The multiprocessors of the device, where it runs an image of a kernel for Hopper that was compiled for capability
/// 9.0a; else 0: then the general kernels do its work. Instantiated by SYMPOW_CUDA_IMAGE, beside the kernel's launch.
template <class Kernel>
Status multiprocessors_of(int& count) noexcept;

}  // namespace sympow::cuda::library
