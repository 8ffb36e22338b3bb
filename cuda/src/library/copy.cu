// Copies on a stream.
#include <cuda_runtime.h>

#include "launch.hpp"
#include "runtime_status.hpp"

namespace sympow::cuda::library {

Status copy(const double* from, double* to, std::int64_t n, const char* name, Stream stream) noexcept {
  if (!to || to == from) return {};
  const std::size_t bytes = sizeof(double) * static_cast<std::size_t>(n);
  return runtime_status(
      from ? cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream) : cudaMemsetAsync(to, 0, bytes, stream),
      name);
}

}  // namespace sympow::cuda::library
