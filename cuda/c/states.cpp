#include "states.hpp"

#include <cuda_runtime_api.h>

#include "call.hpp"

namespace SYMPOW_NAMESPACE::c {

namespace {

void check_runtime(cudaError_t error) {
  if (error != cudaSuccess) throw DeviceError(std::string("CUDA: ") + cudaGetErrorString(error));
}

/// A problem says by a pointer that it has rates; sizes depend on no more. Nobody reads it.
const double* some_rates() {
  alignas(16) static const double none[2] = {0, 0};
  return none;
}

cuda::Problem sizes_of(const DeviceShape& shape) {
  if (shape.power == 0) detail::raise<InvalidArgument>("exponential scores have no states");
  if (shape.key_heads > shape.heads || (shape.key_heads > 0 && shape.heads % shape.key_heads != 0))
    detail::raise<ShapeMismatch>("shape->heads is ", shape.heads, ", must be a multiple of key_heads, ",
                                 shape.key_heads);
  cuda::Problem p;
  p.power = shape.power;
  p.d = size_of_cuda(shape.d), p.e = size_of_cuda(shape.e);
  p.batch = shape.batch;
  p.query_heads = p.gate_heads = shape.heads, p.key_heads = shape.key_heads;
  p.element = element_of_cuda(shape.element);
  p.rates = some_rates();
  p.pairing = Pairing::interleaved;  // any: sizes do not depend on it
  p.carries_state = true;
  return p;
}

}  // namespace

StatesOnDevice::StatesOnDevice(const DeviceShape& shape, const DeviceMemory* memory)
    : DeviceStates(shape), sizes_(sizes_of(shape)) {
  check(cuda::state_bytes(sizes_, state_bytes_));
  check(cuda::tail_bytes(sizes_, shape.capacity, tail_bytes_));
  count_bytes_ = (static_cast<std::size_t>(sizes_.batch) * sizeof(std::int32_t) + 255) / 256 * 256;
  rate_bytes_ = static_cast<std::size_t>(sizes_.d / 2) * sizeof(double);
  if (memory == nullptr) return;
  memory_ = memory->bytes;
  memory_->name = "memory of the states";
  if (static_cast<std::size_t>(memory_->span()) < bytes())
    detail::raise<InvalidArgument>("shape->memory has ", memory_->span(), " bytes, must have ", bytes());
  state_ = state_in(memory_->data);
  check(cuda::tail_in(sizes_, shape.capacity, memory_->data + state_bytes_, tail_bytes_, tail_));
  tail_.counts = reinterpret_cast<std::int32_t*>(memory_->data + state_bytes_ + tail_bytes_);
  rates_ = reinterpret_cast<double*>(memory_->data + state_bytes_ + tail_bytes_ + count_bytes_);
  tokens_.assign(static_cast<std::size_t>(shape.batch), 0);
}

cuda::State StatesOnDevice::state_in(void* memory) const {
  cuda::State state;
  check(cuda::state_in(sizes_, memory, state_bytes_, state));
  return state;
}

void StatesOnDevice::clear() noexcept {
  tail_.count = 0;
  is_empty_ = is_counted_ = true;
  is_interrupted_ = false;
  std::fill(tokens_.begin(), tokens_.end(), 0);
}

Index StatesOnDevice::tokens(Index sequence) const {
  check_whole();
  if (!is_counted_)
    detail::raise<InvalidArgument>(
        "states have seen sequences whose lengths or slots lie on the device; their tokens are known to the caller "
        "alone");
  return tokens_[static_cast<std::size_t>(sequence)];
}

void StatesOnDevice::check_whole() const {
  if (is_interrupted_)
    detail::raise<InterruptedState>(
        "states: the device failed in the midst of a call; clear them, or move others there");
}

cuda::State StatesOnDevice::state(const cuda::Problem& problem) const {
  cuda::State state = state_;
  if (problem.rates == nullptr) state.turns = nullptr;
  return state;
}

cuda::Tail StatesOnDevice::tail(const cuda::Problem& problem) const {
  cuda::Tail tail = tail_;
  if (problem.rates == nullptr) tail.paths = nullptr;
  if (problem.gate_heads == 0) tail.log_gates = nullptr;
  return tail;
}

cuda::Problem StatesOnDevice::sizes(Index batch) const {
  cuda::Problem problem = sizes_;
  problem.batch = batch;
  return problem;
}

std::size_t StatesOnDevice::fold_bytes() const {
  std::size_t bytes = 0;
  check(cuda::fold_workspace(of_tail_, tail_.capacity, bytes));
  return bytes;
}

bool StatesOnDevice::has_tail_like(const cuda::Problem& problem) const {
  return problem.gate_heads == of_tail_.gate_heads && (problem.rates == nullptr) == (of_tail_.rates == nullptr);
}

bool StatesOnDevice::must_fold(const cuda::Problem& problem) const { return has_tail() && !has_tail_like(problem); }

void StatesOnDevice::clear(cuda::Stream stream) {
  cuda::Tail tail = tail_;
  check(cuda::copy_slots(sizes_, state_, {}, {}, state_, tail, {sizes_.batch}, stream));
  is_empty_ = false;
}

void StatesOnDevice::fold(const DeviceMemory& workspace, cuda::Stream stream) {
  cuda::Tail tail = this->tail(of_tail_);
  check(cuda::fold(of_tail_, state(of_tail_), tail, workspace.bytes.data, workspace.size(), stream));
  tail_.count = 0;
}

void StatesOnDevice::begin_tail(const cuda::Problem& problem, cuda::Stream stream) {
  of_tail_ = problem;
  of_tail_.batch = sizes_.batch;
  if (problem.rates == nullptr) return;
  check_runtime(cudaMemcpyAsync(rates_, problem.rates, rate_bytes_, cudaMemcpyDeviceToDevice, stream));
  of_tail_.rates = rates_;
}

void StatesOnDevice::count(const cuda::Problem& problem) {
  is_counted_ = is_counted_ && problem.lengths == nullptr;
  for (Index& tokens : tokens_) tokens += problem.tokens;
}

void StatesOnDevice::copy(const cuda::Slots& slots, const StatesOnDevice& from, const cuda::Slots& from_slots,
                          Index count, cuda::Stream stream) {
  cuda::Problem problem = sizes(count);
  cuda::Tail tail = tail_, from_tail;
  if (from.has_tail()) {
    if (has_tail() && !has_tail_like(from.of_tail_))
      detail::raise<InvalidArgument>(
          "from has tokens in tails of calls with other gates or theta than states have; fold one of them by "
          "sympow_states_to_arrays");
    if (!has_tail()) begin_tail(from.of_tail_, stream);
    if (of_tail_.rates == nullptr) problem.rates = nullptr;
    problem.gate_heads = of_tail_.gate_heads;
    tail = this->tail(problem), from_tail = from.tail(problem);
  }
  check(cuda::copy_slots(problem, from.state(problem), from_tail, from_slots, state(problem), tail, slots, stream));
  tail_.count = tail.count;
  is_counted_ = false;
}

void StatesOnDevice::write(const std::byte* from, const std::vector<Index>& tokens, cuda::Stream stream) {
  clear(stream);  // the tails
  check_runtime(cudaMemcpyAsync(memory_->data, from, state_bytes_, cudaMemcpyHostToDevice, stream));
  check_runtime(cudaStreamSynchronize(stream));
  clear();
  is_empty_ = false;
  std::copy(tokens.begin(), tokens.end(), tokens_.begin());
}

void StatesOnDevice::read(std::byte* to, cuda::Stream stream) const {
  check_runtime(cudaMemcpyAsync(to, memory_->data, state_bytes_, cudaMemcpyDeviceToHost, stream));
  check_runtime(cudaStreamSynchronize(stream));
}

void StatesOnDevice::set(const cuda::StateArrays& arrays, cuda::Stream stream) {
  clear(stream);  // the tails
  check(cuda::state_of_arrays(sizes_, arrays, state_, stream));
  clear();
  is_empty_ = false;
}

void StatesOnDevice::get(const cuda::StateArrays& arrays, cuda::Stream stream) const {
  check(cuda::state_to_arrays(sizes_, state_, arrays, stream));
}

CurrentDevice::CurrentDevice(std::int32_t id) {
  check_runtime(cudaGetDevice(&before_));
  if (before_ == id) return;
  check_runtime(cudaSetDevice(id));
  changed_ = true;
}
CurrentDevice::~CurrentDevice() {
  if (changed_) cudaSetDevice(before_);
}

}  // namespace SYMPOW_NAMESPACE::c
