// What this device can do at its best: a large product of cuBLAS, a copy of memory, a read from the L2 cache.
#pragma once

#if SYMPOW_BENCH_CUBLAS
#include <cublas_v2.h>
#endif

#include "fill.hpp"
#include "timing.hpp"

namespace sympow::cuda::bench {

struct Ceilings {
  double product = 0;  ///< operations a second of n × n × n of bf16 with sums in float; 0 without cuBLAS
  double copy = 0;     ///< bytes a second, read and written
  double l2 = 0;       ///< bytes a second that all multiprocessors read from the L2 cache
  double product_clock = 0, copy_clock = 0;  ///< GHz
};

/// n³ product by cuBLAS, 2 n³ operations.
inline void measure_product(cudaStream_t stream, Ceilings& ceilings, int n) {
#if SYMPOW_BENCH_CUBLAS
  const auto check_blas = [](cublasStatus_t status) {
    if (status != CUBLAS_STATUS_SUCCESS)
      throw std::runtime_error("cuBLAS: " + std::to_string(static_cast<int>(status)));
  };
  cublasHandle_t handle;
  check_blas(cublasCreate(&handle));
  const struct Destroy {
    cublasHandle_t handle;
    ~Destroy() { cublasDestroy(handle); }
  } destroy{handle};
  check_blas(cublasSetStream(handle, stream));
  const std::int64_t count = std::int64_t{n} * n;
  const Memory a = normal_array(Element::bf16, count, 1, stream), b = normal_array(Element::bf16, count, 2, stream);
  const Memory c(static_cast<std::size_t>(count) * 2);
  const float one = 1, zero = 0;
  const auto multiply = [&](int) {
    check_blas(cublasGemmEx(handle, CUBLAS_OP_T, CUBLAS_OP_N, n, n, n, &one, a.get(), CUDA_R_16BF, n, b.get(),
                            CUDA_R_16BF, n, &zero, c.get(), CUDA_R_16BF, n, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT));
  };
  ceilings.product = 2. * n * n * n / (time_calls(stream, multiply, .6).median * 1e-3);
  ceilings.product_clock = clock_after(stream, multiply);
#else
  static_cast<void>(stream), static_cast<void>(ceilings), static_cast<void>(n);
#endif
}

/// A copy from device to device, which reads and writes `bytes`.
inline void measure_copy(cudaStream_t stream, Ceilings& ceilings, std::size_t bytes) {
  const Memory from(bytes), to(bytes);
  check(cudaMemsetAsync(from.get(), 1, bytes, stream), "memory");
  const auto copy = [&](int) {
    check(cudaMemcpyAsync(to.get(), from.get(), bytes, cudaMemcpyDeviceToDevice, stream), "a copy");
  };
  ceilings.copy = 2. * static_cast<double>(bytes) / (time_calls(stream, copy, .3).median * 1e-3);
  ceilings.copy_clock = clock_after(stream, copy);
}

/// Each block reads all of `x`, n groups of 16 bytes, from its own place on, past the first cache.
static __global__ void read_all(const uint4* x, std::size_t n, unsigned* sum) {
  unsigned s = 0;
  const std::size_t from = n / gridDim.x * blockIdx.x;
#pragma unroll 8
  for (std::size_t i = threadIdx.x; i < n; i += blockDim.x) {
    const std::size_t at = from + i < n ? from + i : from + i - n;
    const uint4 v = __ldcg(x + at);
    s += v.x ^ v.y ^ v.z ^ v.w;
  }
  atomicAdd(sum, s);  // so that the reads are needed
}

/// Two blocks a multiprocessor, each of which reads the same `bytes`.
inline void measure_l2(cudaStream_t stream, Ceilings& ceilings, std::size_t bytes, int multiprocessors) {
  const Memory x(bytes), sum(sizeof(unsigned));
  check(cudaMemsetAsync(x.get(), 1, bytes, stream), "memory");
  check(cudaMemsetAsync(sum.get(), 0, sizeof(unsigned), stream), "memory");
  const int blocks = 2 * multiprocessors;
  const auto read = [&](int) {
    read_all<<<blocks, 512, 0, stream>>>(static_cast<const uint4*>(x.get()), bytes / 16,
                                         static_cast<unsigned*>(sum.get()));
  };
  ceilings.l2 = static_cast<double>(bytes) * blocks / (time_calls(stream, read, .1).median * 1e-3);
}

}  // namespace sympow::cuda::bench
