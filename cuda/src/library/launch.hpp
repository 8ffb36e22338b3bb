// Kernels and copies on a stream, as functions that are compiled elsewhere.
#pragma once

#include <sympow/cuda/view.hpp>

#include "../layout/blocks.hpp"
#include "refuse.hpp"

namespace sympow::cuda::library {

/// Asks the device for the shared memory of a kernel with more than 48 KB of it, before a call launches anything.
template <class Kernel>
Status allow() noexcept;

/// Kernel::run on a stream, for a grid that fits. Instantiated by SYMPOW_CUDA_LAUNCH, in a file of each family.
template <class Kernel>
Status launch(const Blocks& blocks, const typename Kernel::Args& args, Stream stream) noexcept;

/// to ← from, n numbers, 0 where `from` is null; nothing where `to` is, or where they are the same.
Status copy(const double* from, double* to, std::int64_t n, const char* name, Stream stream) noexcept;

/// The number of multiprocessors of the device, if it runs an image of this kernel for Hopper (compiled for capability
/// 9.0a); else 0, and the general kernels do the work. Instantiated by SYMPOW_CUDA_IMAGE, beside the kernel's launch.
template <class Kernel>
Status multiprocessors_of(int& count) noexcept;

}  // namespace sympow::cuda::library
