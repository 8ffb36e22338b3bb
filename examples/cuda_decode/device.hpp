// The program's own memory on the device, its streams, and errors as exceptions.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include <sympow/cuda/status.hpp>

namespace cuda_decode {

inline void check(cudaError_t error) {
  if (error != cudaSuccess) throw std::runtime_error(cudaGetErrorString(error));
}
inline void check(const sympow::cuda::Status& status) {
  if (!status.ok()) throw std::runtime_error(status.text());
}

/// One allocation, handed out in pieces that nobody returns: the library takes memory as it is given.
class Pool {
 public:
  explicit Pool(std::size_t bytes) : bytes_(bytes) { check(cudaMalloc(&begin_, bytes)); }
  ~Pool() { cudaFree(begin_); }
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  /// So many entries, aligned to 256 bytes.
  template <class T = std::byte>
  T* take(std::size_t count) {
    const std::size_t size = (count * sizeof(T) + 255) / 256 * 256;
    if (size > bytes_ - used_) throw std::runtime_error("the pool of " + std::to_string(bytes_) + " bytes is empty");
    used_ += size;
    return reinterpret_cast<T*>(static_cast<std::byte*>(begin_) + used_ - size);
  }

 private:
  void* begin_ = nullptr;
  std::size_t bytes_, used_ = 0;
};

class Stream {
 public:
  Stream() { check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking)); }
  ~Stream() { cudaStreamDestroy(stream_); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  operator cudaStream_t() const { return stream_; }
  void wait() const { check(cudaStreamSynchronize(stream_)); }
  /// What comes next on this stream begins after all that is on the other one now.
  void wait_for(const Stream& other) const {
    cudaEvent_t event;
    check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    check(cudaEventRecord(event, other));
    check(cudaStreamWaitEvent(stream_, event, 0));
    check(cudaEventDestroy(event));  // once it has happened
  }

 private:
  cudaStream_t stream_ = nullptr;
};

template <class T>
void copy_to_device(T* to, const std::vector<T>& from) {
  check(cudaMemcpy(to, from.data(), from.size() * sizeof(T), cudaMemcpyHostToDevice));
}
template <class T>
std::vector<T> copy_to_host(const T* from, std::size_t count) {
  std::vector<T> to(count);
  check(cudaMemcpy(to.data(), from, count * sizeof(T), cudaMemcpyDeviceToHost));
  return to;
}

}  // namespace cuda_decode
