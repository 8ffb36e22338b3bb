// Decoding: a few new tokens of every sequence against its state.
#pragma once

#include <cstddef>

#include "attention.hpp"

namespace sympow::cuda {

/// The newest tokens of every sequence, as they are, keys of rotary turned: they enter the state together, when the
/// tail is folded. So a token only reads S, and early rows are as exact as attention. All sequences have as many tokens
/// in it.
struct Tail {
  void* keys = nullptr;    ///< [B, Hk, capacity, d] of the problem's element; aligned to 16 bytes, as the others are
  void* values = nullptr;  ///< [B, Hk, capacity, e]
  float* log_gates = nullptr;  ///< [B, Hs, capacity]; null where there are no gates
  int capacity = 0;            ///< tokens, 64 or 128
  int count = 0;               ///< of them in use
  double* paths = nullptr;     ///< [B, Hk, capacity], of rotary: sums of β since the last fold, each token's included
};

/// The bytes of a tail in one piece of memory, and its arrays there; the tail is empty. Memory aligned to 256 bytes.
Status tail_bytes(const Problem& problem, int capacity, std::size_t& bytes) noexcept;
Status tail_in(const Problem& problem, int capacity, void* memory, std::size_t bytes, Tail& tail) noexcept;

/// The bytes of the workspace of `decode`, and of `fold` for a tail of this capacity.
Status decode_workspace(const Problem& problem, std::size_t& bytes) noexcept;
Status fold_workspace(const Problem& problem, int capacity, std::size_t& bytes) noexcept;

/// Rows of `problem.tokens` new tokens, 1 … 64, of every sequence: of a prefill's problem without `offsets`, `lengths`,
/// and with the tokens of a step. Each sees the state, the tail and the new tokens up
/// to itself. They are appended to the tail, which must have room for them. Inputs and outputs are those of `attend`,
/// but no states are among them, and conditions are over all tokens. Cost: S and Z are read once.
Status decode(const Problem& problem, const State& state, Tail& tail, const Inputs& inputs, const Outputs& outputs,
              void* workspace, std::size_t bytes, Stream stream) noexcept;

/// The tokens of the tail enter the state; the tail is empty. What the problem says of tokens does not matter.
Status fold(const Problem& problem, const State& state, Tail& tail, void* workspace, std::size_t bytes,
            Stream stream) noexcept;

}  // namespace sympow::cuda
