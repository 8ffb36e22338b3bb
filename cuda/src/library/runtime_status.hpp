// What the CUDA runtime says, as a status.
#pragma once

#include <cuda_runtime.h>

#include "refuse.hpp"

namespace sympow::cuda::library {

inline Status runtime_status(cudaError_t error, const char* what) noexcept {
  if (error == cudaSuccess) return {};
  return refuse(Code::cuda_error, "%s: %s", what, cudaGetErrorString(error));
}

}  // namespace sympow::cuda::library
