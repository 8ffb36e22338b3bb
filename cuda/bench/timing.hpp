// Times of work on a stream, between events.
#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <vector>

#include "device.hpp"

namespace sympow::cuda::bench {

struct Times {
  double median = 0, least = 0;  ///< milliseconds of a call, in a stream that is never empty
  double host = 0;               ///< milliseconds until a call returns
  int calls = 0;
};

/// Times of call(i), which puts the same work on the stream for every i = 0, 1, …, so that callers can take other
/// arrays in each call. First it warms up; then all calls are queued, with events between them, and nothing waits until
/// the end. Takes about `seconds` in all, but makes at least 7 calls.
template <class Call>
Times time_calls(cudaStream_t stream, const Call& call, double seconds = .25) {
  using Clock = std::chrono::steady_clock;
  const auto seconds_since = [](Clock::time_point t) {
    return std::chrono::duration<double>(Clock::now() - t).count();
  };
  int i = 0;
  call(i++);  // loads the code
  check(cudaStreamSynchronize(stream), "the first call");
  int warm = 0;
  const auto begin = Clock::now();
  while (warm < 3 || (warm < 1000 && seconds_since(begin) < seconds / 4)) {
    call(i++), ++warm;
    if (warm % 4 == 0) check(cudaStreamSynchronize(stream), "a call");
  }
  check(cudaStreamSynchronize(stream), "a call");
  const double each = seconds_since(begin) / warm;
  const int calls = std::clamp(static_cast<int>(seconds * .75 / each), 7, 400);

  std::vector<OwnedEvent> events;
  for (int k = 0; k <= calls; ++k) events.push_back(new_event());
  const auto queued = Clock::now();
  check(cudaEventRecord(events[0].get(), stream), "an event");
  for (int k = 1; k <= calls; ++k) {
    call(i++);
    check(cudaEventRecord(events[static_cast<std::size_t>(k)].get(), stream), "an event");
  }
  Times times;
  times.calls = calls;
  times.host = seconds_since(queued) / calls * 1e3;
  check(cudaStreamSynchronize(stream), "the calls");

  std::vector<double> all;
  for (std::size_t k = 1; k < events.size(); ++k) {
    float ms = 0;
    check(cudaEventElapsedTime(&ms, events[k - 1].get(), events[k].get()), "a time");
    all.push_back(ms);
  }
  std::sort(all.begin(), all.end());
  times.median = all[all.size() / 2], times.least = all.front();
  return times;
}

/// Cycles of `turns` dependent additions, and the nanoseconds they took.
static __global__ void count_cycles(int turns, long long* out) {
  long long from, to;
  float x = static_cast<float>(turns);
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(from)::"memory");
  const long long begin = clock64();
  for (int i = 0; i < turns; ++i) asm volatile("add.f32 %0, %0, %0;" : "+f"(x));
  const long long end = clock64();
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(to)::"memory");
  out[0] = end - begin, out[1] = to - from, out[2] = static_cast<long long>(x > 0);
}

/// The clock right after `call`, in GHz: what the chip runs at under this load.
template <class Call>
double clock_after(cudaStream_t stream, const Call& call) {
  Memory counts(3 * sizeof(long long));
  call(0);
  count_cycles<<<1, 1, 0, stream>>>(50000, static_cast<long long*>(counts.get()));
  check(cudaStreamSynchronize(stream), "the clock");
  long long values[2];
  check(cudaMemcpy(values, counts.get(), sizeof values, cudaMemcpyDeviceToHost), "the clock");
  return values[1] > 0 ? static_cast<double>(values[0]) / static_cast<double>(values[1]) : 0;
}

}  // namespace sympow::cuda::bench
