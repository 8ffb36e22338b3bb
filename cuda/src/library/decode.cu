// decode: what new tokens read of states, then their rows.
#include <algorithm>
#include <cmath>

#include "../decode/finish_rows.hpp"
#include "../decode/read_state.hpp"
#include "checks.hpp"
#include "costs.hpp"
#include "dispatch.hpp"
#include "slots.hpp"
#include "states.hpp"

namespace sympow::cuda {

namespace library {
namespace {

/// How rows are cut into parts: the state of `queries` new tokens and heads in slabs, each a part of every row.
struct Parts {
  std::int64_t rows;
  int rows_of_slab, slabs;
  float *sums = nullptr, *normaliser = nullptr;

  void take(const Problem& p, Pieces& pieces) {
    pieces.take(sums, product(rows, slabs, p.e));
    pieces.take(normaliser, product(rows, slabs));
  }
};

/// call.operator()<ReadState>() with as many queries a block as share a state, one or eight at once. A grid always
/// fits: check_decoding allows 65535 heads, as many sequences, and 64 tokens.
template <class Call>
Status with_kernel(const Problem& problem, const Call& call) {
  return dispatch(problem, [&]<class T, int P, int d, block::Products>() {
    using One = ReadState<T, P, d, 1>;
    using Eight = ReadState<T, P, d, 8>;
    static_assert(Eight::blocks(1, 65535, 1, 64, Eight::least_rows).fit());
    const bool one = problem.query_heads / problem.state_heads() * problem.tokens == 1;
    return one ? call.template operator()<T, d, One>() : call.template operator()<T, d, Eight>();
  });
}

/// A row has the same parts, whatever is decoded beside it: they depend on the number of slots, not of sequences.
template <class Kernel>
Parts parts_of(const Problem& p, const Slots& slots) {
  const int rows = Kernel::rows(static_cast<int>(Costs().multiprocessors), slots.count * p.state_heads());
  return {p.batch * p.query_heads * p.tokens, rows, Kernel::slabs(rows)};
}

template <class T, int d, class Kernel>
Status decode(const Problem& p, const State& state, const Tail& tail, const TailSlots& tail_slots, const Slots& slots,
              const Inputs& inputs, const Outputs& outputs, void* memory, Stream stream) {
  Parts parts = parts_of<Kernel>(p, slots);
  Pieces pieces(memory);
  parts.take(p, pieces);
  const auto tokens = static_cast<int>(p.tokens), batch = static_cast<int>(p.batch);
  const Heads heads = heads_of(p);
  const States states = states_of(state);
  const StateParts state_parts{{parts.sums}, {parts.normaliser}};
  const auto queries = rows_of<const T>(inputs.queries, p);
  const NewTokens<T> fresh{rows_of<const T>(inputs.keys, p), rows_of<const T>(inputs.values, p),
                           rows_of<const float>(inputs.log_gates, p)};
  const TailArrays<T> tokens_of_tail{{static_cast<T*>(tail.keys)},
                                     {static_cast<T*>(tail.values)},
                                     {p.gate_heads > 0 ? tail.log_gates : nullptr},
                                     tail.capacity,
                                     tail_slots};
  Rotary rotary{};
  if (p.rates) {
    rotary = rotary_of(p, paths_of(p, tail), state.turns);
    SYMPOW_CUDA_TRY(launch_paths(p, sequences_of(p, {Form::chunked, 64, p.batch, 1, 0}), tail_slots, inputs.beta,
                                 paths_of(p, tail), nullptr, nullptr, nullptr, stream));
  }
  SYMPOW_CUDA_TRY(launch<Kernel>(
      Kernel::blocks(batch, heads.query, heads.state, tokens, parts.rows_of_slab),
      {queries, fresh, tokens_of_tail, states, state_parts, heads, tokens, p.e, parts.rows_of_slab, rotary}, stream));
  using Finish = FinishRows<T, d>;
  return launch<Finish>(
      Finish::blocks(batch, heads.query, tokens),
      {queries, tokens_of_tail, states, state_parts, rows_of<T>(outputs.rows, p), rows_of<float>(outputs.condition, p),
       heads, tokens, parts.slabs, p.power, p.e, p.is_normalised(), Finish::default_noise,
       std::pow(static_cast<double>(p.scale), p.power), rotary},
      stream);
}

/// The workspace of a decoding: what is said of slots, then the memory of the fold, which the parts of rows take again.
struct DecodeMemory {
  SlotArrays slots;
  std::uint64_t rest;  ///< where the latter begin

  DecodeMemory(const Problem& problem, const Tail& tail, void* workspace) {
    Pieces pieces(workspace);
    if (tail.counts) slots = SlotArrays(problem, pieces);
    rest = pieces.bytes();
  }
};

Status check_call(const Problem& problem, const State& state, const Tail& tail, const Slots& slots,
                  const Inputs& inputs, const Outputs& outputs) {
  SYMPOW_CUDA_TRY(check_decoding(problem));
  SYMPOW_CUDA_TRY(check_state(problem, state, "state"));
  SYMPOW_CUDA_TRY(check_tail(problem, tail));
  SYMPOW_CUDA_TRY(check_slots(problem, tail, slots));
  if (!tail.counts && tail.count + problem.tokens > tail.capacity)
    return refuse(Code::bad_argument, "the tail has room for %d tokens, not for %d: fold it first",
                  tail.capacity - tail.count, static_cast<int>(problem.tokens));
  if (is_there(inputs.initial_state) || is_there(outputs.final_state))
    return refuse(Code::bad_argument, "decoding has a state of its own: initial_state and final_state must be null");
  return check_arrays(problem, inputs, outputs);
}

}  // namespace
}  // namespace library

Status decode_workspace(const Problem& problem, const Tail& tail, const Slots& slots, std::size_t& bytes) noexcept {
  using namespace library;
  SYMPOW_CUDA_TRY(check_decoding(problem));
  SYMPOW_CUDA_TRY(check_slots(problem, tail, slots));
  bytes = 0;
  if (problem.batch == 0) return {};
  SYMPOW_CUDA_TRY((with_kernel(problem, [&]<class T, int d, class Kernel>() {
    Pieces pieces;
    parts_of<Kernel>(problem, slots).take(problem, pieces);
    return counted(pieces, "workspace", bytes);
  })));
  if (!tail.counts) return {};
  std::size_t of_fold = 0;
  SYMPOW_CUDA_TRY(fold_memory_bytes(problem, tail.capacity, of_fold));
  bytes = DecodeMemory(problem, tail, nullptr).rest + std::max(bytes, of_fold);
  return {};
}

Status decode(const Problem& problem, const State& state, Tail& tail, const Slots& slots, const Inputs& inputs,
              const Outputs& outputs, void* workspace, std::size_t bytes, Stream stream) noexcept {
  using namespace library;
  SYMPOW_CUDA_TRY(check_call(problem, state, tail, slots, inputs, outputs));
  std::size_t needed = 0;
  SYMPOW_CUDA_TRY(decode_workspace(problem, tail, slots, needed));
  SYMPOW_CUDA_TRY(check_memory(workspace, bytes, needed, "workspace"));
  if (problem.batch == 0) return {};
  const DecodeMemory parts(problem, tail, workspace);
  void* memory = static_cast<std::byte*>(workspace) + parts.rest;
  const auto tokens = static_cast<int>(problem.tokens);
  if (tail.counts) {
    const int most = tail.capacity - tokens;
    const bool folds = tail.count > most;
    SYMPOW_CUDA_TRY(reserve_tails(problem, tail, slots, nullptr, most, folds, parts.slots, stream));
    if (folds) SYMPOW_CUDA_TRY(fold_tails(problem, state, tail, parts.slots, memory, stream));
  }
  SYMPOW_CUDA_TRY((with_kernel(problem, [&]<class T, int d, class Kernel>() {
    return library::decode<T, d, Kernel>(problem, state, tail, parts.slots.of_decoding(tail.count), slots, inputs,
                                         outputs, memory, stream);
  })));
  tail.count = std::min(tail.count + tokens, tail.capacity);
  return {};
}

Status drop(const Problem& problem, const Tail& tail, const Slots& slots, const std::int32_t* tokens,
            Stream stream) noexcept {
  using namespace library;
  SYMPOW_CUDA_TRY(check_capacity(tail.capacity));
  SYMPOW_CUDA_TRY(check_slots(problem, tail, slots));
  if (!tail.counts)
    return refuse(Code::bad_argument, "the tail's counts: a null pointer; else subtract from its count");
  SYMPOW_CUDA_TRY(check_integers("tokens", tokens, true));
  Problem none = problem;
  none.tokens = 0;
  return reserve_tails(none, tail, slots, tokens, tail.capacity, false, {}, stream);
}

}  // namespace sympow::cuda
