// Inputs of the benchmark: normal random numbers, by a counter, so that an entry depends on nothing but its place.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>

#include <sympow/cuda/view.hpp>

#include "device.hpp"

namespace sympow::cuda::bench {

/// A mixed bit pattern of a counter.
__device__ inline std::uint32_t scrambled(std::uint32_t x) {
  x = (x ^ (x >> 16)) * 0x7feb352du;
  x = (x ^ (x >> 15)) * 0x846ca68bu;
  return x ^ (x >> 16);
}

/// Normal with mean 0 and deviation 1, from two uniform numbers (Box, Muller).
__device__ inline float normal(std::uint32_t seed, std::uint32_t i) {
  const float u = (static_cast<float>(scrambled(i * 2 + seed) >> 8) + 1) * 0x1p-24f;
  const float v = static_cast<float>(scrambled(i * 2 + 1 + seed) >> 8) * 0x1p-24f;
  return sqrtf(-2 * logf(u)) * cospif(2 * v);
}

template <class T>
__global__ void fill_normal(T* x, std::int64_t n, std::uint32_t seed) {
  const std::int64_t step = std::int64_t{gridDim.x} * blockDim.x;
  for (std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < n; i += step)
    x[i] = static_cast<T>(normal(seed, static_cast<std::uint32_t>(i)));
}

/// Log gates whose means over tokens are about `mean`: -mean x² of normal x.
static __global__ void fill_log_gates(float* x, std::int64_t n, float mean, std::uint32_t seed) {
  const std::int64_t step = std::int64_t{gridDim.x} * blockDim.x;
  for (std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < n; i += step) {
    const float y = normal(seed, static_cast<std::uint32_t>(i));
    x[i] = -mean * y * y;
  }
}

inline constexpr std::size_t bytes_of(Element element) { return element == Element::f32 ? 4 : 2; }

/// `count` normal numbers of this type.
inline Memory normal_array(Element element, std::int64_t count, std::uint32_t seed, cudaStream_t stream) {
  Memory memory(static_cast<std::size_t>(count) * bytes_of(element));
  const auto fill = [&](auto* x) { fill_normal<<<1024, 256, 0, stream>>>(x, count, seed); };
  if (element == Element::bf16) fill(static_cast<__nv_bfloat16*>(memory.get()));
  if (element == Element::fp16) fill(static_cast<__half*>(memory.get()));
  if (element == Element::f32) fill(static_cast<float*>(memory.get()));
  check(cudaGetLastError(), "random numbers");
  return memory;
}

inline Memory log_gate_array(std::int64_t count, float mean, std::uint32_t seed, cudaStream_t stream) {
  Memory memory(static_cast<std::size_t>(count) * sizeof(float));
  fill_log_gates<<<1024, 256, 0, stream>>>(static_cast<float*>(memory.get()), count, mean, seed);
  check(cudaGetLastError(), "random gates");
  return memory;
}

}  // namespace sympow::cuda::bench
