// The slots of a call, chosen on the device.
#pragma once

#include "../decode/reserve_tails.hpp"
#include "../layout/tail_slots.hpp"
#include "arguments.hpp"
#include "launch.hpp"

namespace sympow::cuda::library {

/// What ReserveTails says of each sequence to the kernels after it.
struct SlotArrays {
  std::int32_t *slots = nullptr, *tails = nullptr, *folded_slots = nullptr, *folded = nullptr;

  SlotArrays() = default;
  SlotArrays(const Problem& problem, Pieces& pieces) {
    for (auto* array : {&slots, &tails, &folded_slots, &folded}) pieces.take(*array, product(problem.batch));
  }
  /// Of tails with so many tokens, where no counts are on the device.
  [[nodiscard]] TailSlots of_decoding(int count) const { return {count, {slots}, {tails}}; }
  [[nodiscard]] TailSlots of_fold(int count) const { return {count, {folded_slots}, {folded}}; }
};

/// Checks slots on the device, and moves the counts of their tails; those with more than `most` tokens are `folded`.
inline Status reserve_tails(const Problem& problem, const Tail& tail, const Slots& slots, const std::int32_t* dropped,
                            int most, bool folds, const SlotArrays& to, Stream stream) {
  const auto batch = static_cast<int>(problem.batch);
  return launch<ReserveTails>(ReserveTails::blocks(batch),
                              {{slots.indices},
                               {dropped},
                               {tail.counts},
                               {reinterpret_cast<std::int32_t*>(slots.faults)},
                               {to.slots},
                               {to.tails},
                               {to.folded_slots},
                               {to.folded},
                               batch,
                               static_cast<int>(slots.count),
                               tail.capacity,
                               most,
                               static_cast<int>(problem.tokens),
                               folds},
                              stream);
}

/// The tokens of tails enter the states: all `tail.count` of them, or what `chosen` says. `memory` is that of
/// `fold_memory_bytes`.
Status fold_tails(const Problem& problem, const State& state, const Tail& tail, const SlotArrays& chosen, void* memory,
                  Stream stream) noexcept;
Status fold_memory_bytes(const Problem& problem, int capacity, std::size_t& bytes) noexcept;

}  // namespace sympow::cuda::library
