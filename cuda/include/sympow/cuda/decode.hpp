// Decoding: a few new tokens of every sequence against its state.
#pragma once

#include <cstddef>

#include "attention.hpp"

namespace sympow::cuda {

/// The newest tokens of every slot, as they are, keys of rotary turned: they enter the state together, when the tail is
/// folded. So a token only reads S, and early rows are as exact as attention. A slot holds the state and the tail of
/// one sequence; below, N is the number of slots.
struct Tail {
  void* keys = nullptr;    ///< [N, Hk, capacity, d] of the problem's element; aligned to 16 bytes, as the others are
  void* values = nullptr;  ///< [N, Hk, capacity, e]
  float* log_gates = nullptr;  ///< [N, Hs, capacity]; null where there are no gates
  int capacity = 0;            ///< tokens, 64 or 128
  /// Tokens in use, the same of all slots. With `counts` it is an upper bound of them: if it leaves room for the new
  /// tokens, `decode` does not look for full tails. Calls raise it; a program that knows a smaller one may set it.
  int count = 0;
  double* paths = nullptr;  ///< [N, Hk, capacity], of rotary: sums of β since the last fold, each token's included
  /// [N] on the device, in memory of the program: tokens in use of each slot, 0 of an empty tail. Calls read and write
  /// them there, also in a captured graph. Null: `count` of every slot.
  std::int32_t* counts = nullptr;
};

/// What a call says of a sequence that it left out, on the device.
enum class SlotFault : std::int32_t {
  none,   ///< nothing is wrong: the sequence was computed, or its index is negative
  slot,   ///< the index is not below the number of slots
  tokens  ///< the count of its tail is not between 0 and the capacity, or more tokens are dropped than are there
};

/// Which slot each sequence of a call has. So sequences come, go and change places between calls. A row has the same
/// bits whatever else is in the call. Two sequences of a call must not have the same slot: see `check_slots`.
struct Slots {
  std::int64_t count = 0;  ///< N, of the states and the tail; below 2^31
  /// [B] on the device: sequence b has slot indices[b]. If that is negative, b is inactive: nothing of it is read, its
  /// rows and its slot stay as they are. Null: sequence b has slot b.
  const std::int32_t* indices = nullptr;
  SlotFault* faults = nullptr;  ///< [B] on the device, written by every call; null: not wanted
};

/// For indices in memory of the host, before they go to the device: refused if one is not below `slots.count`, or two
/// are the same and not negative. `slots.indices` is not looked at. Cost: O(B) for every 2^16 slots.
Status check_slots(const Slots& slots, const std::int32_t* indices, std::int64_t batch) noexcept;

/// The bytes of a tail of the problem's `batch` slots in one piece of memory, and its arrays there, without `counts`;
/// the tail is empty. Memory aligned to 256 bytes.
Status tail_bytes(const Problem& problem, int capacity, std::size_t& bytes) noexcept;
Status tail_in(const Problem& problem, int capacity, void* memory, std::size_t bytes, Tail& tail) noexcept;

/// The bytes of the workspace of `decode`, which with `Tail::counts` may fold, and of `fold`. Of a tail, only its
/// capacity and whether it has counts matter.
Status decode_workspace(const Problem& problem, const Tail& tail, const Slots& slots, std::size_t& bytes) noexcept;
Status fold_workspace(const Problem& problem, int capacity, std::size_t& bytes) noexcept;
/// Overload without slots and without counts on the device.
inline Status decode_workspace(const Problem& problem, std::size_t& bytes) noexcept {
  return decode_workspace(problem, {}, {problem.batch}, bytes);
}

/// Rows of `problem.tokens` new tokens, 1 … 64, of every sequence: of a prefill's problem without `offsets`, `lengths`,
/// and with the tokens of a step. Each sees the state, the tail and the new tokens up to itself. They are appended to
/// the tail. With `Tail::counts` a tail without room for them is folded first, by itself; without, it must have room.
/// Inputs and outputs are those of `attend`, but no states are among them, and conditions are over all tokens. Cost: S
/// and Z are read once.
Status decode(const Problem& problem, const State& state, Tail& tail, const Slots& slots, const Inputs& inputs,
              const Outputs& outputs, void* workspace, std::size_t bytes, Stream stream) noexcept;
/// Overload without slots: sequence b has slot b.
inline Status decode(const Problem& problem, const State& state, Tail& tail, const Inputs& inputs,
                     const Outputs& outputs, void* workspace, std::size_t bytes, Stream stream) noexcept {
  return decode(problem, state, tail, {problem.batch}, inputs, outputs, workspace, bytes, stream);
}

/// The tokens of the tails enter the states; the tails are empty. What the problem says of tokens does not matter.
Status fold(const Problem& problem, const State& state, Tail& tail, const Slots& slots, void* workspace,
            std::size_t bytes, Stream stream) noexcept;
/// Overload without slots: sequence b has slot b.
inline Status fold(const Problem& problem, const State& state, Tail& tail, void* workspace, std::size_t bytes,
                   Stream stream) noexcept {
  return fold(problem, state, tail, {problem.batch}, workspace, bytes, stream);
}

/// The newest tokens[b] of sequence b leave its tail, [B] on the device, as if they had never been decoded. The tail
/// must have that many: those of the last call are always there, those that were folded no more. Else nothing of b
/// changes, and its fault is `tokens`. Needs `Tail::counts`. Cost: one small kernel.
Status drop(const Problem& problem, const Tail& tail, const Slots& slots, const std::int32_t* tokens,
            Stream stream) noexcept;

/// Copies `problem.batch` slots, to the bit: slot to_slots.indices[b] becomes what slot from_slots.indices[b] is. It
/// becomes empty if the latter is negative, or if from_slots.count is 0. A negative to_slots.indices[b] copies nothing.
/// Both sides may be the same arrays, but no slot is written twice, or read by one pair and written by another.
/// `from_tail` without keys: all tails of `from` are empty. `to_tail` without keys: only states are copied. For beams,
/// prefixes that are kept, prefilled states on their way to a slot, and slots that begin anew. Faults go to `to_slots`.
/// Cost: states and tokens of tails are read and written once.
Status copy_slots(const Problem& problem, const ConstState& from, const Tail& from_tail, const Slots& from_slots,
                  const State& to, Tail& to_tail, const Slots& to_slots, Stream stream) noexcept;

}  // namespace sympow::cuda
