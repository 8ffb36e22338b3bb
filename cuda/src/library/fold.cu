// fold: tails into states.
#include <algorithm>

#include "checks.hpp"
#include "dispatch.hpp"
#include "slots.hpp"
#include "states.hpp"

namespace sympow::cuda {

namespace library {
namespace {

/// As many sequences as fill a large GPU are folded at once: the workspace does not grow with the batch. What the
/// problem says of tokens does not matter.
Problem folded_at_once(const Problem& problem, int capacity) {
  constexpr std::int64_t wanted_blocks = 512;
  const std::int64_t heads = std::max<std::int64_t>(problem.state_heads(), 1);
  const std::int64_t blocks = heads * (monomials(problem.power, problem.d) / 640 + 1);
  Problem part = without_tokens(problem);
  part.batch = std::min(problem.batch, (wanted_blocks + blocks - 1) / blocks);
  part.tokens = capacity;
  part.carries_state = true;
  part.chunk = capacity;
  part.rates = nullptr;              // keys of the tail are turned
  part.states = Precision::rounded;  // no query reads them
  return part;
}

/// The tail's and the state's arrays from sequence b on.
Inputs inputs_from(const Problem& p, const Tail& tail, std::int64_t b, const State& its_state) {
  const auto from = [&](void* data, std::int64_t heads, std::int64_t channels, Element element) {
    const std::int64_t head = tail.capacity * channels;
    auto* bytes = static_cast<std::byte*>(data);
    return ConstView{bytes ? bytes + static_cast<std::size_t>(b * heads * head) * bytes_of(element) : nullptr, element,
                     heads * head, channels, head};
  };
  return {{},
          from(tail.keys, p.key_heads, p.d, p.element),
          from(tail.values, p.key_heads, p.e, p.element),
          p.gate_heads > 0 ? from(tail.log_gates, p.state_heads(), 1, Element::f32) : ConstView{},
          its_state};
}
State state_from(const Problem& p, const State& state, std::int64_t b) {
  const std::int64_t first = b * p.state_heads(), rows = first * monomials(p.power, p.d);
  return {state.sums + rows * p.e, state.normaliser + rows, state.level + first, state.mass + first};
}

/// The tail's tokens as those of a call, from sequence b on; of chosen slots from slot 0 on, whose places say the rest.
template <class T>
Tokens<T> tokens_of_tail(const Problem& part, const Plan& plan, const Tail& tail, const State& state, std::int64_t b,
                         const SlotArrays& chosen) {
  const std::int64_t first = chosen.folded ? 0 : b;
  const State its_state = state_from(part, state, first);
  const Inputs inputs = inputs_from(part, tail, first, its_state);
  Tokens<T> tokens = tokens_of_call<T>(part, plan, inputs, its_state);
  if (!chosen.folded) return tokens;
  tokens.sequences.lengths = {chosen.folded + b};
  tokens.sequences.places = {chosen.folded_slots + b};
  tokens.keys.sequence = inputs.keys.sequence;  // also of one sequence
  tokens.values.sequence = inputs.values.sequence;
  tokens.log_gates.sequence = inputs.log_gates.sequence;
  return tokens;
}

}  // namespace

Status fold_memory_bytes(const Problem& problem, int capacity, std::size_t& bytes) noexcept {
  SYMPOW_CUDA_TRY(check_capacity(capacity));
  SYMPOW_CUDA_TRY(check_problem(without_tokens(problem)));
  return attention_workspace(folded_at_once(problem, capacity), bytes);
}

Status fold_tails(const Problem& problem, const State& state, const Tail& tail, const SlotArrays& chosen, void* memory,
                  Stream stream) noexcept {
  Problem part = folded_at_once(problem, tail.capacity);
  Plan plan;
  SYMPOW_CUDA_TRY(plan_attention(part, plan));
  Pieces pieces(memory);
  const AttentionMemory arrays(part, plan, pieces);
  if (!chosen.folded) part.tokens = tail.count;
  const std::int64_t at_once = part.batch;
  for (std::int64_t b = 0; b < problem.batch; b += at_once) {
    part.batch = std::min(at_once, problem.batch - b);
    const Status folded = dispatch(part, [&]<class T, int P, int d, block::Products products>() -> Status {
      const Tokens<T> tokens = tokens_of_tail<T>(part, plan, tail, state, b, chosen);
      const Grids grids = grids_of<T, P, d, products>(tokens.sequences, tokens.heads, part.e, plan.form);
      SYMPOW_CUDA_TRY((allow_update<T, P, d, products>(part, tokens)));
      SYMPOW_CUDA_TRY(launch_weights(part, grids.weights, tokens, arrays, stream));
      return launch_states<T, P, d, products>(part, grids, tokens, arrays, prefixes_of<T>(arrays), stream);
    });
    if (!folded.ok()) return folded;
  }
  if (!problem.rates) return {};
  // A sequence without new tokens ends where the tail does.
  const Sequences sequences{{}, {}, static_cast<int>(problem.batch), 0, 64, 0};
  return launch_paths(problem, sequences, chosen.of_fold(tail.count), {}, paths_of(problem, tail), state.turns, nullptr,
                      state.turns, stream);
}

}  // namespace library

Status fold_workspace(const Problem& problem, int capacity, std::size_t& bytes) noexcept {
  SYMPOW_CUDA_TRY(library::fold_memory_bytes(problem, capacity, bytes));
  library::Pieces pieces;
  const library::SlotArrays slots(problem, pieces);
  bytes += pieces.bytes();
  return {};
}

Status fold(const Problem& problem, const State& state, Tail& tail, const Slots& slots, void* workspace,
            std::size_t bytes, Stream stream) noexcept {
  using namespace library;
  std::size_t needed = 0;
  SYMPOW_CUDA_TRY(fold_workspace(problem, tail.capacity, needed));
  SYMPOW_CUDA_TRY(check_tail(problem, tail));
  SYMPOW_CUDA_TRY(check_slots(problem, tail, slots));
  SYMPOW_CUDA_TRY(check_state(problem, state, "state"));
  SYMPOW_CUDA_TRY(check_memory(workspace, bytes, needed, "workspace"));
  if (tail.count == 0 || problem.batch == 0) return {};
  Pieces pieces(workspace);
  SlotArrays chosen;
  if (tail.counts) {
    chosen = SlotArrays(problem, pieces);
    SYMPOW_CUDA_TRY(reserve_tails(without_tokens(problem), tail, slots, nullptr, 0, true, chosen, stream));
  }
  void* memory = static_cast<std::byte*>(workspace) + pieces.bytes();
  SYMPOW_CUDA_TRY(fold_tails(problem, state, tail, chosen, memory, stream));
  if (!slots.indices && problem.batch == slots.count) tail.count = 0;
  return {};
}

}  // namespace sympow::cuda
