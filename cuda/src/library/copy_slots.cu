// copy_slots: states and tails to other slots.
#include "../decode/copy_slots.hpp"

#include "arguments.hpp"
#include "checks.hpp"
#include "launch.hpp"

namespace sympow::cuda {

namespace library {
namespace {

/// Words of 32 bits.
Global<std::int32_t> words_of(const void* data) {
  return {const_cast<std::int32_t*>(static_cast<const std::int32_t*>(data))};
}

/// The arrays of states, and of tails where there are any.
void list_arrays(const Problem& p, const ConstState& from, const Tail& from_tail, const State& to, const Tail& to_tail,
                 CopySlots::Args& args) {
  const auto heads = static_cast<int>(p.state_heads()), key_heads = static_cast<int>(p.key_heads);
  const auto D = static_cast<int>(monomials(p.power, p.d));
  const auto entry = static_cast<int>(bytes_of(p.element));
  const auto add = [&](const void* source, const void* target, int groups, int rows, int width, bool is_tail,
                       std::int32_t fill = 0) {
    if (!target || (is_tail && !source)) return;
    CopySlots::Words& words = args.arrays[args.array_count++];
    words = {{words_of(source).data}, words_of(target), groups, rows, width, is_tail, fill};
    args.blocks_of_pair += words.blocks();
  };
  constexpr auto upper_half_of_minus_infinity = static_cast<std::int32_t>(0xfff00000);
  add(from.sums, to.sums, heads, D, p.e, false);
  add(from.normaliser, to.normaliser, heads, 1, D, false);
  add(from.level, to.level, heads, 1, 2, false, upper_half_of_minus_infinity);
  add(from.mass, to.mass, heads, 1, 1, false);
  if (p.rates) add(from.turns, to.turns, key_heads, 1, p.d, false);
  add(from_tail.keys, to_tail.keys, key_heads, to_tail.capacity, p.d * entry / 4, true);
  add(from_tail.values, to_tail.values, key_heads, to_tail.capacity, p.e * entry / 4, true);
  if (p.gate_heads > 0) add(from_tail.log_gates, to_tail.log_gates, heads, to_tail.capacity, 1, true);
  if (p.rates) add(from_tail.paths, to_tail.paths, key_heads, to_tail.capacity, 2, true);
}

Status check_tails(const Problem& problem, const Tail& from, const Slots& from_slots, const Tail& to,
                   const Slots& to_slots) {
  if (!to.keys && from.keys) return refuse(Code::bad_argument, "the tail copied to: it has no keys, the other one has");
  const struct {
    const char* name;
    const Tail& tail;
    const Slots& slots;
  } sides[] = {{"copied", from, from_slots}, {"copied to", to, to_slots}};
  for (const auto& [name, tail, slots] : sides) {
    const bool is_none = &tail == &from && slots.count == 0;  // all become empty
    if (!slots.indices && problem.batch > slots.count && !is_none)
      return refuse(Code::bad_argument, "slots %s: there are %lld and must be %lld, or indices", name,
                    static_cast<long long>(slots.count), static_cast<long long>(problem.batch));
    if (slots.count < 0 || slots.count > 0x7fffffff)
      return refuse(Code::bad_argument, "slots %s: there are %lld and must be 0 to %d", name,
                    static_cast<long long>(slots.count), 0x7fffffff);
    SYMPOW_CUDA_TRY(check_integers("indices of slots", slots.indices, false));
    SYMPOW_CUDA_TRY(check_integers("faults of slots", slots.faults, false));
    if (!tail.keys) continue;
    SYMPOW_CUDA_TRY(check_tail(problem, tail));
    if (!tail.counts) return refuse(Code::bad_argument, "the tail %s: its counts are a null pointer", name);
  }
  if (from.keys && from.capacity != to.capacity)
    return refuse(Code::bad_argument, "the tail copied has capacity %d and must have %d, that of the tail copied to",
                  from.capacity, to.capacity);
  return {};
}

}  // namespace
}  // namespace library

Status copy_slots(const Problem& problem, const ConstState& from, const Tail& from_tail, const Slots& from_slots,
                  const State& to, Tail& to_tail, const Slots& to_slots, Stream stream) noexcept {
  using namespace library;
  SYMPOW_CUDA_TRY(check_problem(without_tokens(problem)));
  SYMPOW_CUDA_TRY(check_state(problem, from, "state copied"));
  SYMPOW_CUDA_TRY(check_state(problem, to, "state copied to"));
  SYMPOW_CUDA_TRY(check_tails(problem, from_tail, from_slots, to_tail, to_slots));
  if (problem.batch == 0) return {};
  CopySlots::Args args{};
  list_arrays(problem, from, from_tail, to, to_tail, args);
  args.from = {{from_slots.indices}, static_cast<int>(from_slots.count)};
  args.to = {{to_slots.indices}, static_cast<int>(to_slots.count)};
  if (from_tail.keys) args.from_counts = {from_tail.counts};
  if (to_tail.keys) args.to_counts = {to_tail.counts};
  args.faults = {reinterpret_cast<std::int32_t*>(to_slots.faults)};
  args.capacity = to_tail.capacity;
  const Blocks blocks = CopySlots::blocks(static_cast<int>(problem.batch), args.blocks_of_pair);
  if (!blocks.fit())
    return refuse(Code::too_large, "the slots of %lld sequences take more blocks than a grid has",
                  static_cast<long long>(problem.batch));
  SYMPOW_CUDA_TRY(launch<CopySlots>(blocks, args, stream));
  if (from_tail.keys && from_tail.count > to_tail.count) to_tail.count = from_tail.count;
  return {};
}

}  // namespace sympow::cuda
