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
  rate_bytes_ = static_cast<std::size_t>(sizes_.d / 2) * sizeof(double);
  if (memory == nullptr) return;
  memory_ = memory->bytes;
  memory_->name = "memory of the states";
  if (static_cast<std::size_t>(memory_->span()) < bytes())
    detail::raise<InvalidArgument>("shape->memory has ", memory_->span(), " bytes, must have ", bytes());
  state_ = state_in(memory_->data);
  check(cuda::tail_in(sizes_, shape.capacity, memory_->data + state_bytes_, tail_bytes_, tail_));
  rates_ = reinterpret_cast<double*>(memory_->data + state_bytes_ + tail_bytes_);
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
        "states have seen sequences whose lengths lie on the device; their tokens are known to the caller alone");
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

std::size_t StatesOnDevice::fold_bytes() const {
  std::size_t bytes = 0;
  check(cuda::fold_workspace(of_tail_, tail_.capacity, bytes));
  return bytes;
}

bool StatesOnDevice::must_fold(const cuda::Problem& problem) const {
  const bool alike = problem.gate_heads == of_tail_.gate_heads && (problem.rates == nullptr) == !of_tail_.rates;
  return tail_.count > 0 && (!alike || tail_.count + problem.tokens > tail_.capacity);
}

void StatesOnDevice::clear(cuda::Stream stream) {
  check(cuda::clear(sizes_, state_, stream));
  is_empty_ = false;
}

void StatesOnDevice::fold(const DeviceMemory& workspace, cuda::Stream stream) {
  cuda::Tail tail = this->tail(of_tail_);
  check(cuda::fold(of_tail_, state(of_tail_), tail, workspace.bytes.data, workspace.size(), stream));
  tail_.count = 0;
}

void StatesOnDevice::begin_tail(const cuda::Problem& problem, cuda::Stream stream) {
  of_tail_ = problem;
  if (problem.rates == nullptr) return;
  check_runtime(cudaMemcpyAsync(rates_, problem.rates, rate_bytes_, cudaMemcpyDeviceToDevice, stream));
  of_tail_.rates = rates_;
}

void StatesOnDevice::count(const cuda::Problem& problem) {
  is_counted_ = is_counted_ && problem.lengths == nullptr;
  for (Index& tokens : tokens_) tokens += problem.tokens;
}

void StatesOnDevice::write(const std::byte* from, const std::vector<Index>& tokens, cuda::Stream stream) {
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
