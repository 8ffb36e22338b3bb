// Memory and streams of a GPU for tests.
#pragma once

#include <cuda_runtime.h>

#include <cstdlib>
#include <vector>

#include "require.hpp"

namespace sympow::test {

/// The runtime must do what a test asks of it.
inline void runtime(cudaError_t error) {
  if (error == cudaSuccess) return;
  std::printf("the CUDA runtime: %s\n", cudaGetErrorString(error));
  std::exit(1);
}
/// Devices of compute capability 8.6, 8.9 and 12.0 have 99 KB of shared memory for a block, not enough for all kernels.
inline bool is_small_device() {
  int device = 0, bytes = 0;
  runtime(cudaGetDevice(&device));
  runtime(cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device));
  return bytes < 160 << 10;
}
inline bool done(const cuda::Status& status) {
  if (status.code() == cuda::Code::device_too_small && is_small_device()) {
    std::printf("  not on this device: %s\n", status.text());
    return false;
  }
  return require(status.ok(), "%s", status.text());
}

/// n entries on the device, which begin as bytes 0xff: NaN, if they are floats of any format.
template <class T>
class Array {
 public:
  explicit Array(std::size_t n = 0) : size_(n) {
    if (n > 0) runtime(cudaMalloc(&data_, n * sizeof(T)));
    fill(0xff);
  }
  explicit Array(const std::vector<T>& x) : Array(x.size()) {
    if (size_ > 0) runtime(cudaMemcpy(data_, x.data(), size_ * sizeof(T), cudaMemcpyHostToDevice));
  }
  Array(Array&& other) noexcept : data_(other.data_), size_(other.size_) { other.data_ = nullptr; }
  Array& operator=(Array&&) = delete;
  ~Array() { cudaFree(data_); }

  void fill(int byte) {
    if (size_ > 0) runtime(cudaMemset(data_, byte, size_ * sizeof(T)));
  }
  T* data() const { return data_; }
  std::size_t size() const { return size_; }
  std::vector<T> values() const {
    std::vector<T> x(size_);
    if (size_ > 0) runtime(cudaMemcpy(x.data(), data_, size_ * sizeof(T), cudaMemcpyDeviceToHost));
    return x;
  }

 private:
  T* data_ = nullptr;
  std::size_t size_;
};

class OwnStream {
 public:
  OwnStream() { runtime(cudaStreamCreate(&stream_)); }
  OwnStream(const OwnStream&) = delete;
  OwnStream& operator=(const OwnStream&) = delete;
  ~OwnStream() { cudaStreamDestroy(stream_); }
  operator cuda::Stream() const { return stream_; }
  void wait() const { runtime(cudaStreamSynchronize(stream_)); }

 private:
  cudaStream_t stream_ = nullptr;
};

}  // namespace sympow::test
