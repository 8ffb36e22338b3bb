// How a problem is computed: its form, its chunks, and what the workspace holds.
#pragma once

#include <cstddef>
#include <cstdint>

#include <sympow/cuda/decode.hpp>

#include "memory.hpp"

namespace sympow::cuda::library {

/// Sizes of a problem that was checked.
struct Plan {
  Form form;  ///< chunked or quadratic
  int chunk;
  std::int64_t slots;   ///< see Sequences
  std::int64_t chunks;  ///< of the longest sequence
  std::int64_t D;
};

/// The plan of `attend`. Every grid of it fits. `backward`: that of `attend_vjp`, and of an `attend` that leaves it its
/// states: the same form, but where the problem names no chunk one that is short enough for pairs.
Status plan_attention(const Problem& problem, Plan& plan, bool backward = false) noexcept;

/// Whether rows are those of LinearAttention.
bool rows_go_along(const Problem& problem, Form form) noexcept;

/// Whether states between chunks are kept in two terms.
bool splits(const Problem& problem) noexcept;

/// Whether gradients go through states between chunks.
inline bool has_states(const Problem& p, const Plan& plan) noexcept {
  return plan.form == Form::chunked && (plan.chunks > 1 || p.carries_state);
}

/// Of all sequences, with what lies between padded ones.
std::uint64_t all_tokens(const Problem& problem) noexcept;

/// The arrays of a workspace: see TokenArrays, ChunkArrays, ChunkSums, Prefixes. Sums and prefixes are of states only.
struct AttentionMemory {
  double *sum, *key, *level;
  float *inverse, *to_end;
  std::int32_t* reset;
  float* key_mass;  // null unless rows are those of LinearAttention
  double *total, *end;
  float* own_mass;
  double* enter;
  float *mass, *keep, *add;
  std::int32_t* shift;
  float *own_sums, *own_normaliser;
  std::byte *prefix_sums, *prefix_normaliser, *prefix_rest;  // rest: null unless states are split
  double *paths, *begin;                                     // of rotary, as the next: see Paths
  std::byte* turned;                                         // [tokens, Hk, d]: keys

  /// Takes them from `pieces`.
  AttentionMemory(const Problem& problem, const Plan& plan, Pieces& pieces) noexcept;
};

}  // namespace sympow::cuda::library
