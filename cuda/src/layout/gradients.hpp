// What the kernels of gradients tell each other, and where their blocks of 64 tokens lie.
//
// Gradients of Σ dy_i·y_i. Beside what chunks.hpp has:
//   q̂_i, dŷ_i  q_i = 2^{n_i} q̂_i, dy_i = 2^{a_i} dŷ_i, the largest entry of both in [½, 1); rows of zeros have n = 0
//   f_i        by what row i was multiplied: 1 / normaliser, or scale^P 2^{G_i + r_i + P n_i}; f_i = 2^{ε_i} m_i,
//              |m_i| ≤ 1
//   h_i = ε_i + a_i - r_i; -∞ of rows that nothing comes from: degenerate, dy_i = 0, or beyond the last
//   ℓ_i = -y_i·dŷ_i of rows that are normalised, else 0
//   c_ij = dŷ_i·v_j + ℓ_i
//   R_j = max h_i over the rows i ≥ j that see key j; -∞ where all are
// so that pair (i, j) has the coupling
//   t_ij = ∂loss/∂log s_ij = 2^{u_j + h_i} m_i (q̂_i·k̂_j)^P c_ij
// and neither 2^{u_j - r_i}, as rows of queries weigh it, nor 2^{h_i - R_j}, as rows of keys do, is above 1.
//
// A chunk is left with the adjoint H = ∂loss/∂S of the state after it, Z as one more channel, but for the coefficients
// of monomials; it is kept like a state, with L, M, A (chunks.hpp), and
//   H ← 2^{G_c} H + Σ_i 2^{h_i} m_i φ(q̂_i) [dŷ_i; ℓ_i]ᵀ     over the chunks from the last to the first, over the rows
//   that
//                                                        see the state, s_i < 0; 0 in place of 2^{G_c} after a reset
// so that rows have w_i = 2^{h_i - begin} m_i where keys have 2^{u_j + G_c - end}.
//
// With rotary q, k are turned ones here, and gradients turn back. Angle μ_u of token t turns the pairs j < t ≤ i by
//   f_iju = dx_ij ⟨k_j, J_u q_i⟩     J_u turns pair u by a quarter and drops the others; of means x = q·k
// so that dβ_t = Σ_{j<t≤i} Σ_u rates_u f_iju and d rates_u = Σ_ij (path_i - path_j) f_iju. Sums over all keys of a row
// are ⟨dq_i, J_u q_i⟩, over all rows of a key -⟨dk_j, J_u k_j⟩.
#pragma once

#include "chunks.hpp"
#include "turns.hpp"

namespace sympow::cuda {

/// Of rows: the entry of query head h, token i of a slot is (h slots + slot) chunk + i.
struct RowArrays {
  Global<double> exponent;    ///< h_i
  Global<double> peak;        ///< R_j
  Global<float> factor;       ///< m_i
  Global<float> offset;       ///< ℓ_i
  Global<float> inverse;      ///< 2^-n_i
  Global<float> mass;         ///< ‖q̂_i‖^P; null: not wanted
  Global<std::int32_t> unit;  ///< s of query head h and a slot at h slots + slot: dx_ij is rounded as 2^-s dx_ij
};

/// Sums of t_ij that d log γ_t = Σ_{j < t ≤ i} t_ij is made of, by blocks of 64 tokens: none is a difference. Entries
/// of tokens as in RowArrays. Null: not wanted.
struct FlowArrays {
  Global<double> row;     ///< Σ_j t_ij over keys in earlier blocks
  Global<double> key;     ///< Σ_i t_ij over rows in later blocks
  Global<double> inside;  ///< Σ_{j < t ≤ i} t_ij, all three in one block
  Global<double>
      through;  ///< Σ t_ij, i in block I, j before block J < I: at ((h slots + slot) n + I) n + J of n blocks
  // Of the chunked form. Keys of earlier chunks are before all blocks, so they are in `row` and `through`.
  Global<double> later;    ///< Σ_i t_ij over rows in later chunks, entries as in TokenArrays
  Global<double> passing;  ///< Σ t_ij, j before and i after the chunk, of state head h at h slots + slot
};

/// Sums of key gradients so far, of key head h, token i of a slot: 2^{E + s} times these are 2^{x_j} dk_j, s the unit
/// of RowArrays.
struct KeptSums {
  Global<float> sums = {};    ///< d from ((h slots + slot) chunk + i) d on
  Global<double> units = {};  ///< E at (h slots + slot) chunk + i
};

/// What is turned, and what comes back to angles.
struct AngleArrays {
  Rotary rotary = {};
  /// Of Σ_u rates_u f_iju. `key`, `later` and `passing` are those of key heads, entries of tokens as in KeptSums; `key`
  /// is over all rows behind the block of the key. Null: no gradient of angles is wanted
  FlowArrays flows = {};
  /// Parts of d rates_u = Σ_{j<t≤i} β_t f_iju, of tokens t in the order of pairs (i, j): from the end of j's block to
  /// i, of query head h and rows i in block n of N at ((h slots + slot) N + n) d/2 + u; from j to the end of its block,
  /// and behind that to the end of the chunk where i is in a later one, of key head h and keys j likewise; and all
  /// tokens of a chunk between j and i, of key head h at (h slots + slot) d/2 + u.
  Global<double> rows = {}, keys = {}, passing = {};
  KeptSums later_rows = {};    ///< of all rows behind the block of key j
  KeptSums later_chunks = {};  ///< of those behind the chunk; null: there is no state
};

inline constexpr int block_tokens = 64;

/// 64 tokens of a chunk. Chunks have a multiple of 64 tokens.
struct TokenBlock {
  int b, top, length;        ///< of sequence b; they begin at token `top` of a chunk that has `length`
  int chunk;                 ///< which one of the sequence
  std::int64_t begin, slot;  ///< the chunk's first token, and its slot of head 0

  /// Of all sequences; some lie beyond the end of theirs: top ≥ length.
  static std::int64_t count(const Sequences& sequences) {
    return std::int64_t{sequences.batch} * sequences.most_chunks() * (sequences.chunk / block_tokens);
  }
  SYMPOW_DEVICE TokenBlock(const Sequences& sequences, int index) {
    const int blocks = sequences.chunk / block_tokens;
    chunk = index / blocks % sequences.most_chunks();
    b = index / blocks / sequences.most_chunks();
    top = index % blocks * block_tokens;
    const Sequence sequence = sequences[b];
    const int left = sequence.length - chunk * sequences.chunk;
    length = left < sequences.chunk ? left : sequences.chunk;
    begin = sequence.first + std::int64_t{chunk} * sequences.chunk;
    slot = sequence.slot + chunk;
  }
};

}  // namespace sympow::cuda
