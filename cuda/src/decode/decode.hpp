// What decoding keeps of the past, and what its kernels tell each other.
//
// A new token i of a query head sees the state, in which the older tokens were folded, the tail, the tokens since then,
// and the new tokens j ≤ i. With Γ_j = Σ log2 of the gates after token j up to token i, Γ of the state those of the whole
// tail and of the new tokens up to i, and q = 2^y q̂, k_j = 2^{x_j} k̂_j:
//
//   Σ_j s_ij v_j = 2^{P y} (2^{Γ + ⌈L⌉} Σ_m c_m φ_m(q̂) S_m + Σ_j 2^{Γ_j + P x_j} (q̂·k̂_j)^P v_j)
//
// ReadState sums the first term over slabs of monomials, FinishRows adds slabs, tail and new tokens, and divides.
#pragma once

#include "../layout/blocks.hpp"
#include "../layout/chunks.hpp"

namespace sympow::cuda {

/// The tokens since the last fold, as many in each sequence: token t of [B, key heads, capacity, d], [.., e], and
/// [B, state heads, capacity], t < count. What lies beyond is not looked at.
template <class T>
struct TailArrays {
  Global<T> keys, values;
  Global<float> log_gates;  ///< natural; null if tokens have none
  int capacity, count;
};

/// Parts of state rows: of row r = (b state heads + h) n + i, i of the n = group · tokens queries that share state head h,
/// query head by query head. Slab l has the entries (r slabs + l) e + c of the sums, r slabs + l of the normaliser.
struct StateParts {
  Global<float> sums, normaliser;
};

}  // namespace sympow::cuda
