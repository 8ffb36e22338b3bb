// Which of two accesses of different warps comes before the other, whatever the schedule: vector clocks (Mattern 1989).
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

namespace sympow::cuda::block::host {

inline constexpr int most_warps = 32;  // of a block

/// One time for each warp of a block. A warp's own time passes where it releases: at barriers. An access at time t of
/// warp w comes before everything whose clock has at least t for w.
class VectorClock {
 public:
  [[nodiscard]] std::uint32_t operator[](int warp) const { return times_[static_cast<std::size_t>(warp)]; }
  void advance(int warp) { ++times_[static_cast<std::size_t>(warp)]; }
  /// From now on after everything that `other` is after.
  void join(const VectorClock& other) {
    for (std::size_t w = 0; w < times_.size(); ++w) times_[w] = std::max(times_[w], other.times_[w]);
  }

 private:
  std::array<std::uint32_t, most_warps> times_{};
};

/// A hardware barrier of a block: full once so many threads have come; then all who wait go on, after all who came.
class Barrier {
 public:
  /// A warp comes. Returns the warps to be woken, as bits, which is 0 while the barrier is not full.
  std::uint32_t come(int warp, bool waits, int threads, VectorClock& clock) {
    if (arrived_ == 0) expected_ = threads;
    arrived_ += 32;
    clock_.join(clock);
    clock.advance(warp);
    came_ |= 1u << warp;
    if (waits) waiting_ |= 1u << warp;
    return arrived_ >= expected_ ? waiting_ : 0;
  }
  [[nodiscard]] bool full() const { return arrived_ > 0 && arrived_ >= expected_; }
  [[nodiscard]] bool has_come(int warp) const { return (came_ >> warp & 1u) != 0; }
  [[nodiscard]] const VectorClock& clock() const { return clock_; }
  [[nodiscard]] int arrived() const { return arrived_; }    ///< threads
  [[nodiscard]] int expected() const { return expected_; }  ///< threads; of the first who came
  void reset() { *this = {}; }

 private:
  VectorClock clock_;
  int arrived_ = 0, expected_ = 0;
  std::uint32_t came_ = 0, waiting_ = 0;
};

}  // namespace sympow::cuda::block::host
