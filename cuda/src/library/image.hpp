// The image of a kernel that a device runs, where the kernel is compiled.
#pragma once

#include "launch_hopper.hpp"
#include "launch_kernel.hpp"

namespace sympow::cuda::library {

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

/// Compiles the question for the image of a kernel, beside its launch; in namespace sympow::cuda.
#define SYMPOW_CUDA_IMAGE(...) template Status library::multiprocessors_of<__VA_ARGS__>(int&) noexcept;
