// Where states and tails lie in a piece of memory.
#include <sympow/cuda/decode.hpp>

#include "checks.hpp"
#include "memory.hpp"

namespace sympow::cuda {

namespace library {
namespace {

State take_state(const Problem& p, Pieces& pieces) noexcept {
  const std::uint64_t states = product(p.batch, p.state_heads()), rows = product(states, monomials(p.power, p.d));
  State state;
  pieces.take(state.sums, product(rows, p.e));
  pieces.take(state.normaliser, rows);
  pieces.take(state.level, states);
  pieces.take(state.mass, states);
  if (p.rates) pieces.take(state.turns, product(p.batch, p.key_heads, p.d / 2));
  return state;
}

Tail take_tail(const Problem& p, int capacity, Pieces& pieces) noexcept {
  const std::uint64_t tokens = product(p.batch, p.key_heads, capacity);
  Tail tail;
  std::byte *keys, *values;
  pieces.take(keys, product(tokens, p.d, bytes_of(p.element)));
  pieces.take(values, product(tokens, p.e, bytes_of(p.element)));
  tail.keys = keys;
  tail.values = values;
  if (p.gate_heads > 0) pieces.take(tail.log_gates, product(p.batch, p.state_heads(), capacity));
  tail.capacity = capacity;
  if (p.rates) pieces.take(tail.paths, product(p.batch, p.key_heads, capacity));
  return tail;
}

}  // namespace
}  // namespace library

Status state_bytes(const Problem& problem, std::size_t& bytes) noexcept {
  SYMPOW_CUDA_TRY(library::check_problem(problem));
  library::Pieces pieces;
  library::take_state(problem, pieces);
  return library::counted(pieces, "state", bytes);
}

Status state_in(const Problem& problem, void* memory, std::size_t bytes, State& state) noexcept {
  std::size_t needed = 0;
  SYMPOW_CUDA_TRY(state_bytes(problem, needed));
  SYMPOW_CUDA_TRY(library::check_memory(memory, bytes, needed, "memory of the state"));
  library::Pieces pieces(memory);
  state = library::take_state(problem, pieces);
  return {};
}

Status tail_bytes(const Problem& problem, int capacity, std::size_t& bytes) noexcept {
  SYMPOW_CUDA_TRY(library::check_problem(problem));
  SYMPOW_CUDA_TRY(library::check_capacity(capacity));
  library::Pieces pieces;
  library::take_tail(problem, capacity, pieces);
  return library::counted(pieces, "tail", bytes);
}

Status tail_in(const Problem& problem, int capacity, void* memory, std::size_t bytes, Tail& tail) noexcept {
  std::size_t needed = 0;
  SYMPOW_CUDA_TRY(tail_bytes(problem, capacity, needed));
  SYMPOW_CUDA_TRY(library::check_memory(memory, bytes, needed, "memory of the tail"));
  library::Pieces pieces(memory);
  tail = library::take_tail(problem, capacity, pieces);
  return {};
}

}  // namespace sympow::cuda
