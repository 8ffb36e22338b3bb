// Memory, streams and events of the benchmark, which end with the program's own words where the runtime fails.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <memory>
#include <stdexcept>
#include <string>
#include <type_traits>

#include <sympow/cuda/status.hpp>

namespace sympow::cuda::bench {

inline void check(cudaError_t error, const char* what) {
  if (error != cudaSuccess) throw std::runtime_error(std::string(what) + ": " + cudaGetErrorString(error));
}
/// A kernel that this build leaves out, or that this device has no room for.
struct NotCompiled : std::runtime_error {
  using std::runtime_error::runtime_error;
};
inline void check(const Status& status, const char* what) {
  if (status.code() == Code::not_compiled || status.code() == Code::device_too_small) throw NotCompiled(status.text());
  if (!status.ok()) throw std::runtime_error(std::string(what) + ": " + status.text());
}

template <class T, cudaError_t (*Destroy)(T)>
struct Destroyer {
  void operator()(T x) const { static_cast<void>(Destroy(x)); }
};
/// What a function of the runtime made, until the end of the scope.
template <class T, cudaError_t (*Destroy)(T)>
using Owned = std::unique_ptr<std::remove_pointer_t<T>, Destroyer<T, Destroy>>;

using OwnedStream = Owned<cudaStream_t, cudaStreamDestroy>;
using OwnedEvent = Owned<cudaEvent_t, cudaEventDestroy>;

inline OwnedStream new_stream() {
  cudaStream_t stream;
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "a stream");
  return OwnedStream(stream);
}
inline OwnedEvent new_event() {
  cudaEvent_t event;
  check(cudaEventCreate(&event), "an event");
  return OwnedEvent(event);
}

/// Bytes on the device.
class Memory {
 public:
  Memory() = default;
  explicit Memory(std::size_t bytes) : bytes_(bytes) {
    void* begin = nullptr;
    check(cudaMalloc(&begin, bytes > 0 ? bytes : 1), "device memory");
    begin_.reset(begin);
  }
  void* get() const { return begin_.get(); }
  std::size_t bytes() const { return bytes_; }

 private:
  Owned<void*, cudaFree> begin_;
  std::size_t bytes_ = 0;
};

/// The device, as the report names it.
struct Device {
  std::string name;
  int multiprocessors = 0, major = 0, minor = 0, driver = 0, runtime = 0;
  double clock_ghz = 0, memory_clock_ghz = 0;  ///< the highest, not those of the run
  std::size_t l2_bytes = 0, bytes = 0;
};

inline Device this_device() {
  int device = 0;
  check(cudaGetDevice(&device), "no device");
  cudaDeviceProp properties;
  check(cudaGetDeviceProperties(&properties, device), "the device's properties");
  const auto attribute = [&](cudaDeviceAttr which) {
    int value = 0;
    check(cudaDeviceGetAttribute(&value, which, device), "a device attribute");
    return value;
  };
  Device d;
  d.name = properties.name;
  d.multiprocessors = properties.multiProcessorCount, d.major = properties.major, d.minor = properties.minor;
  d.l2_bytes = static_cast<std::size_t>(properties.l2CacheSize), d.bytes = properties.totalGlobalMem;
  d.clock_ghz = attribute(cudaDevAttrClockRate) / 1e6;
  d.memory_clock_ghz = attribute(cudaDevAttrMemoryClockRate) / 1e6;
  check(cudaDriverGetVersion(&d.driver), "the driver's version");
  check(cudaRuntimeGetVersion(&d.runtime), "the runtime's version");
  return d;
}

}  // namespace sympow::cuda::bench
