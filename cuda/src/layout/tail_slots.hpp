// The slots of a call: which state and tail each sequence has, and how many tokens are in its tail.
#pragma once

#include "sequences.hpp"

namespace sympow::cuda {

/// A slot holds the state and the tail of one sequence.
struct TailSlot {
  int index;  ///< negative: the sequence is inactive
  int count;  ///< tokens in the tail

  SYMPOW_HOST_DEVICE bool is_active() const { return index >= 0; }
};

/// The slot of each sequence. Indices were checked by ReserveTails, so kernels write within their arrays.
struct TailSlots {
  int count = 0;                            ///< tokens in every tail, where `counts` is null
  Global<const std::int32_t> indices = {};  ///< by sequence; null: sequence b has slot b
  Global<const std::int32_t> counts = {};   ///< by sequence

  SYMPOW_DEVICE TailSlot operator[](int b) const {
    TailSlot slot{b, count};
    if (indices.data) slot.index = block::uniform(block::load_one(indices, Lanes<std::int64_t>(b)));
    if (counts.data) slot.count = block::uniform(block::load_one(counts, Lanes<std::int64_t>(b)));
    return slot;
  }
};

}  // namespace sympow::cuda
