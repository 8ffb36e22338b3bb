// States in memory of the caller: S, Z and a tail of every head, and the rates of rotary that turned the tail.
#pragma once

#include <vector>

#include <sympow/c/device.hpp>
#include <sympow/cuda/decode.hpp>

namespace SYMPOW_NAMESPACE::c {

/// Arrays as sympow::cuda takes them.
inline cuda::StateArrays data_of(const Array& sums, const Array& normaliser, const Array* angles = nullptr) {
  return {reinterpret_cast<float*>(sums.data), reinterpret_cast<float*>(normaliser.data),
          angles == nullptr ? nullptr : reinterpret_cast<double*>(angles->data)};
}

class StatesOnDevice final : public DeviceStates {
 public:
  /// Where `memory` is null, nowhere: what it would take.
  StatesOnDevice(const DeviceShape& shape, const DeviceMemory* memory);

  [[nodiscard]] std::size_t bytes() const { return state_bytes_ + tail_bytes_ + count_bytes_ + rate_bytes_; }
  void clear() noexcept override;
  [[nodiscard]] Index tokens(Index sequence) const override;
  [[nodiscard]] const Array* memory() const { return pointer_to(memory_); }

  /// The arrays that a call uses: it has no angles without rates, in a tail no gates without them.
  [[nodiscard]] cuda::State state(const cuda::Problem& problem) const;
  [[nodiscard]] cuda::Tail tail(const cuda::Problem& problem) const;
  /// What a problem of all states would be, with gates and rates; of so many of them.
  [[nodiscard]] cuda::Problem sizes(Index batch) const;
  [[nodiscard]] bool is_empty() const { return is_empty_; }
  [[nodiscard]] bool has_tail() const { return tail_.count > 0; }
  /// Throws `InterruptedState` where a device has failed in the midst of a call.
  void check_whole() const;

  /// The bytes of workspace that a fold of the tokens in the tail takes.
  [[nodiscard]] std::size_t fold_bytes() const;
  /// Whether a tail must be folded before so many tokens of a problem enter it.
  [[nodiscard]] bool must_fold(const cuda::Problem& problem) const;

  // On a stream. They throw `DeviceError`.
  void clear(cuda::Stream stream);
  void fold(const DeviceMemory& workspace, cuda::Stream stream);
  /// f(tail), which appends to it, to slots of it if `has_slots`. Then any tail may be full.
  void append(const cuda::Problem& problem, bool has_slots, cuda::Stream stream, const auto& f) {
    if (tail_.count == 0) begin_tail(problem, stream);
    cuda::Tail tail = this->tail(problem);
    if (has_slots) tail.count = tail.capacity;
    f(tail);
    tail_.count = tail.count;
    is_counted_ = is_counted_ && !has_slots;
    count(problem);
  }
  /// All tokens of a problem have entered.
  void count(const cuda::Problem& problem);
  /// Forgets how many tokens the states have seen: they came from elsewhere.
  void uncount() { is_counted_ = false; }
  /// Slots of other states, or these, become slots of these.
  void copy(const cuda::Slots& slots, const StatesOnDevice& from, const cuda::Slots& from_slots, Index count,
            cuda::Stream stream);
  /// f(), after which states are interrupted where the device failed.
  void guarded(const auto& f) {
    try {
      f();
    } catch (const DeviceError&) {
      is_interrupted_ = true;
      throw;
    }
  }
  /// Bytes of S, Z, levels, masses and angles, in one piece: to a host and back.
  void write(const std::byte* from, const std::vector<Index>& tokens, cuda::Stream stream);
  void read(std::byte* to, cuda::Stream stream) const;
  /// They become what arrays are, with no tokens seen; the other way, without a tail.
  void set(const cuda::StateArrays& arrays, cuda::Stream stream);
  void get(const cuda::StateArrays& arrays, cuda::Stream stream) const;
  /// The same arrays in another memory.
  [[nodiscard]] cuda::State state_in(void* memory) const;
  [[nodiscard]] std::size_t state_bytes() const { return state_bytes_; }

 private:
  void begin_tail(const cuda::Problem& problem, cuda::Stream stream);
  [[nodiscard]] bool has_tail_like(const cuda::Problem& problem) const;

  cuda::Problem sizes_;          // with gates and rates: all that a call may have
  cuda::Problem of_tail_ = {};   // of the tokens in the tail, rates being the copy of them
  std::optional<Array> memory_;  // null: nowhere
  std::size_t state_bytes_ = 0, tail_bytes_ = 0, count_bytes_ = 0, rate_bytes_ = 0;
  cuda::State state_ = {};
  cuda::Tail tail_ = {};  // with counts on the device
  double* rates_ = nullptr;
  bool is_empty_ = true, is_interrupted_ = false, is_counted_ = true;
  std::vector<Index> tokens_;
};

/// The device that a call is for: the current one of this thread meanwhile. Throws `DeviceError`.
class CurrentDevice {
 public:
  explicit CurrentDevice(std::int32_t id);
  ~CurrentDevice();
  CurrentDevice(const CurrentDevice&) = delete;
  CurrentDevice& operator=(const CurrentDevice&) = delete;

 private:
  int before_ = 0;
  bool changed_ = false;
};

}  // namespace SYMPOW_NAMESPACE::c
