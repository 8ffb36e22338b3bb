// What decoding keeps of the past, and what its kernels tell each other.
//
// Token i of a query head sees the state, into which the older tokens were folded, the tail, the tokens since then, and
// the new tokens j ≤ i. Γ_j is the sum of log2 of the gates after token j up to token i, Γ that of all gates since the
// fold up to token i. With q = 2^y q̂ and k_j = 2^{x_j} k̂_j, the largest channels of q̂ and k̂_j between 1 and 2:
//
//   Σ_j s_ij v_j = 2^{P y} (2^{Γ + ⌈L⌉} Σ_m c_m φ_m(q̂) S_m + Σ_j 2^{Γ_j + P x_j} (q̂·k̂_j)^P v_j)
//
// ReadState sums the first term over slabs of monomials and appends the new tokens to the tail; FinishRows adds slabs
// and tokens, and divides. A tail without room for the new tokens is folded before, by the kernels of chunks.
// ReserveTails chooses those, where the counts of tails are on the device.
#pragma once

#include "../layout/blocks.hpp"
#include "../layout/chunks.hpp"
#include "../layout/tail_slots.hpp"

namespace sympow::cuda {

/// The tokens since the last fold: token t of [slots, key heads, capacity, d], [.., e], and
/// [slots, state heads, capacity], t < the slot's count; keys of rotary are turned. What lies beyond is not looked at.
template <class T>
struct TailArrays {
  Global<T> keys, values;
  Global<float> log_gates;  ///< natural; null if tokens have none
  int capacity;
  TailSlots slots;
};

/// What rows read from slabs of states. Row r = (b state heads + h) n + i is query i of the n = group · tokens that
/// share state head h, query head by query head; slab l has entries (r slabs + l) e + c of the sums, r slabs + l of
/// the normaliser.
struct StateParts {
  Global<float> sums, normaliser;
};

}  // namespace sympow::cuda
