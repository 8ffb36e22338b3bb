// The launch of a kernel, where it is compiled: in one file only. Each file that includes this has a kernel of its own,
// as nvcc has it, so of two files one could set attributes of the kernel that the other does not launch.
#pragma once

#include <cuda_runtime.h>

#include <atomic>
#include <cstdint>

#include "../block/block.hpp"
#include "launch.hpp"
#include "runtime_status.hpp"

namespace sympow::cuda::library {

template <class Kernel>
Status allow() noexcept {
  static_assert(Kernel::shared_bytes <= 227 << 10, "no GPU has so much shared memory");
  static std::atomic<std::uint64_t> allowed = 0;  // a bit for each of the first 64 devices
  int device = 0, most = 0;
  SYMPOW_CUDA_TRY(runtime_status(cudaGetDevice(&device), "no device"));
  const std::uint64_t bit = device < 64 ? std::uint64_t{1} << device : 0;
  if (allowed.load(std::memory_order_relaxed) & bit) return {};
  SYMPOW_CUDA_TRY(runtime_status(cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device),
                                 "the shared memory of the device"));
  if (Kernel::shared_bytes > most)
    return refuse(Code::device_too_small, "the device has %d bytes of shared memory for a block, a kernel needs %d",
                  most, Kernel::shared_bytes);
  SYMPOW_CUDA_TRY(
      runtime_status(cudaFuncSetAttribute(reinterpret_cast<const void*>(&block::entry<Kernel>),
                                          cudaFuncAttributeMaxDynamicSharedMemorySize, Kernel::shared_bytes),
                     "a kernel's shared memory"));
  allowed.fetch_or(bit, std::memory_order_relaxed);
  return {};
}

template <class Kernel>
Status launch(const Blocks& blocks, const typename Kernel::Args& args, Stream stream) noexcept {
  if (blocks.x <= 0 || blocks.y <= 0 || blocks.z <= 0) return {};
  const dim3 grid(static_cast<unsigned>(blocks.x), static_cast<unsigned>(blocks.y), static_cast<unsigned>(blocks.z));
  void* values[] = {const_cast<typename Kernel::Args*>(&args)};
  return runtime_status(cudaLaunchKernel(reinterpret_cast<const void*>(&block::entry<Kernel>), grid,
                                         dim3(Kernel::threads), values, Kernel::shared_bytes, stream),
                        "a launch");
}

template <class Kernel>
Status multiprocessors_of(int& count) noexcept {
  static std::atomic<int> known[64];  // of the first devices: 1 + count
  int device = 0, major = 0, minor = 0;
  count = 0;
  SYMPOW_CUDA_TRY(runtime_status(cudaGetDevice(&device), "no device"));
  if (device < 64 && known[device].load(std::memory_order_relaxed) > 0) {
    count = known[device].load(std::memory_order_relaxed) - 1;
    return {};
  }
  const auto attribute = [&](int& value, cudaDeviceAttr which) {
    return runtime_status(cudaDeviceGetAttribute(&value, which, device), "the device's capability");
  };
  SYMPOW_CUDA_TRY(attribute(major, cudaDevAttrComputeCapabilityMajor));
  SYMPOW_CUDA_TRY(attribute(minor, cudaDevAttrComputeCapabilityMinor));
  if (major == 9 && minor == 0) {  // an image for other architectures has no body, and so no barriers
    cudaFuncAttributes attributes;
    SYMPOW_CUDA_TRY(runtime_status(
        cudaFuncGetAttributes(&attributes, reinterpret_cast<const void*>(&block::entry<Kernel>)), "a kernel's image"));
    if (attributes.sharedSizeBytes > 0) SYMPOW_CUDA_TRY(attribute(count, cudaDevAttrMultiProcessorCount));
  }
  if (device < 64) known[device].store(1 + count, std::memory_order_relaxed);
  return {};
}

}  // namespace sympow::cuda::library

/// Compiles a kernel of this type and its launch; in namespace sympow::cuda.
#define SYMPOW_CUDA_LAUNCH(...)                           \
  template Status library::allow<__VA_ARGS__>() noexcept; \
  template Status library::launch<__VA_ARGS__>(const Blocks&, const typename __VA_ARGS__::Args&, Stream) noexcept;
/// Compiles the question for the image of a kernel for Hopper, beside its launch.
#define SYMPOW_CUDA_IMAGE(...) template Status library::multiprocessors_of<__VA_ARGS__>(int&) noexcept;
