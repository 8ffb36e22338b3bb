// What a call does with each tail, where the counts of tails are on the device.
#pragma once

#include "../layout/blocks.hpp"
#include "../layout/sequences.hpp"

namespace sympow::cuda {

/// Checks the slot of each sequence, and moves the count of its tail. With c tokens left after `dropped` of them, the
/// tail is folded if c > most, and c becomes 0. Then `tokens` more are reserved. The kernels after this one read what
/// it writes by sequence, so that no index or count of the caller leads them beyond an array.
///
/// A sequence is left out if its index is negative; with a fault if the index is too large, if the count is not between
/// 0 and the capacity, if it has fewer tokens than are dropped, or if its tail should be folded and `folds` is not set.
///
/// A lane a sequence. Cost: up to 32 bytes a sequence.
struct ReserveTails {
  static constexpr int threads = 128, shared_bytes = 0, blocks_per_multiprocessor = 8;
  static constexpr int fault_of_slot = 1, fault_of_count = 2;  ///< SlotFault

  struct Args {
    Global<const std::int32_t> indices;  ///< slots by sequence; null: sequence b has slot b
    Global<const std::int32_t> dropped;  ///< tokens by sequence; null: none
    Global<std::int32_t> counts;         ///< by slot
    Global<std::int32_t> faults;         ///< by sequence; null: not wanted
    // By sequence, of the kernels that follow; null: none do.
    Global<std::int32_t> slots, tails;          ///< TailSlots: indices and counts before the new tokens
    Global<std::int32_t> folded_slots, folded;  ///< Sequences of the fold: places and lengths
    int batch, slot_count, capacity;
    int most, tokens;
    bool folds;
  };

  static Blocks blocks(int batch) { return {(batch + threads - 1) / threads}; }

  SYMPOW_DEVICE static void run(const Args& x) {
    using namespace block;
    const Lanes<int> b = lane() + (32 * warp() + threads * block_index(0));
    const Lanes<bool> exists = b < x.batch;
    Lanes<std::int32_t> index[1] = {b}, count[1] = {0}, dropped[1] = {0};
    if (x.indices.data) load(index, x.indices, b, exists);
    const Lanes<bool> is_beyond = index[0] >= x.slot_count;
    const Lanes<bool> inside = exists && index[0] >= 0 && index[0] < x.slot_count;
    load(count, x.counts, index[0], inside);
    if (x.dropped.data) load(dropped, x.dropped, b, inside);
    // Not below 0 either, as what is dropped.
    const Lanes<bool> is_right = count[0] <= x.capacity && dropped[0] >= 0 && dropped[0] <= count[0];
    const Lanes<int> left = where(is_right, count[0], 0) - where(is_right, dropped[0], 0);
    const Lanes<bool> is_full = left > x.most;
    const Lanes<bool> is_active = inside && is_right && (!is_full || Lanes<bool>(x.folds));
    const Lanes<bool> is_folded = is_active && is_full;
    const auto put = [&](Global<std::int32_t> to, const Lanes<int>& value) {
      const Lanes<std::int32_t> one[1] = {value};
      if (to.data) store(to, b, one, exists);
    };
    put(x.faults, where(is_beyond, fault_of_slot, where(inside && !is_active, fault_of_count, 0)));
    put(x.slots, where(is_active, index[0], -1));
    put(x.tails, where(is_full, 0, left));
    put(x.folded_slots, where(is_folded, index[0], -1));
    put(x.folded, where(is_folded, left, 0));
    const Lanes<std::int32_t> next[1] = {where(is_full, 0, left) + x.tokens};
    store(x.counts, index[0], next, is_active);
  }
};

}  // namespace sympow::cuda
