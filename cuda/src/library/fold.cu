// Tails into states, and empty states.
#include <cuda_runtime.h>

#include <algorithm>
#include <limits>

#include "checks.hpp"
#include "dispatch.hpp"
#include "runtime_status.hpp"
#include "states.hpp"

namespace sympow::cuda {

namespace library {
namespace {

/// The same states, and no tokens.
Problem without_tokens(Problem problem) {
  problem.tokens = problem.total_tokens = 0;
  problem.lengths = nullptr;
  problem.offsets = nullptr;
  problem.form = Form::chunked;
  problem.chunk = 0;
  return problem;
}

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

}  // namespace
}  // namespace library

Status fold_workspace(const Problem& problem, int capacity, std::size_t& bytes) noexcept {
  SYMPOW_CUDA_TRY(library::check_capacity(capacity));
  SYMPOW_CUDA_TRY(library::check_problem(library::without_tokens(problem)));
  return attention_workspace(library::folded_at_once(problem, capacity), bytes);
}

Status fold(const Problem& problem, const State& state, Tail& tail, void* workspace, std::size_t bytes,
            Stream stream) noexcept {
  using namespace library;
  std::size_t needed = 0;
  SYMPOW_CUDA_TRY(fold_workspace(problem, tail.capacity, needed));
  SYMPOW_CUDA_TRY(check_tail(problem, tail));
  SYMPOW_CUDA_TRY(check_state(problem, state, "state"));
  SYMPOW_CUDA_TRY(check_memory(workspace, bytes, needed, "workspace"));
  if (tail.count == 0) return {};
  Problem part = folded_at_once(problem, tail.capacity);
  Plan plan;
  SYMPOW_CUDA_TRY(plan_attention(part, plan));
  Pieces pieces(workspace);
  const AttentionMemory memory(part, plan, pieces);
  part.tokens = tail.count;
  const std::int64_t at_once = part.batch;
  for (std::int64_t b = 0; b < problem.batch; b += at_once) {
    part.batch = std::min(at_once, problem.batch - b);
    const State its_state = state_from(problem, state, b);
    const Inputs inputs = inputs_from(problem, tail, b, its_state);
    const Status folded = dispatch(part, [&]<class T, int P, int d, block::Products products>() -> Status {
      const Tokens<T> tokens = tokens_of_call<T>(part, plan, inputs, its_state);
      const Grids grids = grids_of<T, P, d, products>(tokens.sequences, tokens.heads, part.e, plan.form);
      SYMPOW_CUDA_TRY((allow<Update<T, P, d, products>>()));
      SYMPOW_CUDA_TRY(launch_weights(part, grids.weights, tokens, memory, stream));
      return launch_states<T, P, d, products>(part, grids, tokens, memory, prefixes_of<T>(memory), stream);
    });
    if (!folded.ok()) return folded;
  }
  if (problem.rates) {  // a sequence without new tokens ends where the tail does
    const Sequences sequences{{}, {}, static_cast<int>(problem.batch), 0, 64, 0};
    SYMPOW_CUDA_TRY(launch_paths(problem, sequences, tail.count, {}, paths_of(problem, tail), state.turns, nullptr,
                                 state.turns, stream));
  }
  tail.count = 0;
  return {};
}

Status clear(const Problem& problem, const State& state, Stream stream) noexcept {
  using namespace library;
  SYMPOW_CUDA_TRY(check_problem(problem));
  SYMPOW_CUDA_TRY(check_state(problem, state, "state"));
  std::size_t bytes = 0;
  SYMPOW_CUDA_TRY(state_bytes(problem, bytes));  // which is no more than memory can hold
  if (problem.batch == 0) return {};
  const auto states = static_cast<std::size_t>(problem.batch * problem.state_heads());
  const std::size_t rows = states * static_cast<std::size_t>(monomials(problem.power, problem.d));
  const auto set_to_zero = [&](auto* data, std::size_t count) {
    return runtime_status(cudaMemsetAsync(data, 0, count * sizeof *data, stream), "an empty state");
  };
  SYMPOW_CUDA_TRY(set_to_zero(state.sums, rows * static_cast<std::size_t>(problem.e)));
  SYMPOW_CUDA_TRY(set_to_zero(state.normaliser, rows));
  if (problem.rates)
    SYMPOW_CUDA_TRY(
        set_to_zero(state.turns, static_cast<std::size_t>(problem.batch * problem.key_heads * (problem.d / 2))));
  const Problem empty = without_tokens(problem);
  const Sequences sequences = sequences_of(empty, {Form::chunked, 64, problem.batch, 0, 0});
  return launch<Levels>(Levels::blocks(sequences, heads_of(empty)),
                        {sequences, heads_of(empty), {}, {}, states_of(state)}, stream);
}

}  // namespace sympow::cuda
