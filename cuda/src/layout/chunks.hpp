// What kernels tell each other of the tokens and chunks of a batch.
//
// All weights are powers of 2; their exponents are real numbers, in double. Inside of a chunk, with gates γ_l:
//   G_i = Σ_{l ≤ i} log2 γ_l       from the chunk's first token on, γ_i included; gates of 0 (resets) are left out
//   λ_j = P x_j                    x_j the smallest integer with ‖k_j‖ ≤ 2^{x_j}, within ±126; -∞ where k_j = 0
//   u_j = λ_j - G_j                so key j has the weight 2^{G_i + u_j} (q_i·k̂_j)^P at query i, k̂_j = 2^{-x_j} k_j
//   s_i                            the last token ≤ i of the chunk with a gate of 0; -1 where there is none: only keys
//                                  j ≥ s_i are seen, and the state that enters the chunk only where s_i = -1
//   m_i = max_{max(s_i, 0) ≤ j ≤ i} u_j
// A chunk is entered with a state of level L (see State): r_i = max(L, m_i), or m_i where s_i ≥ 0. In row i key j then
// has weight 2^{u_j - r_i} ≤ 1, the state 2^{M - r_i}, M = ⌈L⌉, and 2^{G_i + r_i} is common to the row.
#pragma once

#include "sequences.hpp"

namespace sympow::cuda {

/// Of tokens: the entry of state head h, token i of a slot is (h slots + slot) chunk + i.
struct TokenArrays {
  Global<double> sum;          ///< G_i
  Global<double> key;          ///< u_j; -∞ of zero keys
  Global<double> level;        ///< m_i; -∞ where all are
  Global<float> inverse;       ///< 2^{-x_j}; 0 of zero keys
  Global<float> to_end;        ///< 2^{G_c + u_j - ⌈end⌉} where j ≥ s_c, else 0: key j's weight in the chunk's own sums
  Global<std::int32_t> reset;  ///< s_i
  Global<float> mass = {};     ///< ‖k̂_j‖^P, for LinearAttention; null: not wanted
};

/// Of chunks: the entry of state head h and a slot is h slots + slot. G_c, s_c, m_c are those of the chunk's last
/// token.
struct ChunkArrays {
  Global<double> total;    ///< G_c; -∞ where s_c ≥ 0
  Global<double> end;      ///< G_c + m_c: the level of the chunk's own sums
  Global<float> own_mass;  ///< Σ_{j ≥ s_c} 2^{G_c + u_j - ⌈end⌉} ‖k̂_j‖^P
  Global<double> enter;    ///< L, the level of the state before the chunk; -∞ of an empty one
  Global<float> mass;      ///< its A, in units of 2^⌈L⌉
  Global<float> keep;      ///< a: S ← a S + b ΔS over the chunk, ΔS in units of 2^⌈end⌉, S in those of its own level
  Global<float> add;       ///< b; both at most 2. Where a is 0 the old S is not looked at.
  Global<std::int32_t> shift;  ///< p = ⌈log2 max(A, 1)⌉ + 3: prefixes are kept as 2^-p S, so 16 bits hold them
};

/// States of B sequences and H heads: S = Σ_j weight_j φ(k_j) v_jᵀ, Z = Σ_j weight_j φ(k_j), both in units of 2^⌈L⌉,
/// where φ is the plain monomials in lexicographic order (no √ of multinomial coefficients), L = log2 of the largest
/// weight 2^{λ_j} with its decay, A = Σ_j weight_j ‖k_j‖^P the mass.
struct States {
  Global<float> sums;        ///< [B, H, D, e]
  Global<float> normaliser;  ///< [B, H, D]
  Global<double> level;      ///< [B, H]: L; -∞ of an empty state
  Global<float> mass;        ///< [B, H]: A in units of 2^⌈L⌉
};

/// Rows in units that Update takes in the place of tokens: those of a chunk before a gate of 0, who see the state.
struct RowsOfState {
  Global<const float> offsets;           ///< ℓ_i (gradients.hpp), entries as those of the tokens
  Global<const std::int32_t> ends;       ///< how many they are, of state head h and a slot at h slots + slot
  Global<const std::int32_t> exponents;  ///< so the next: 2^exponent > |ℓ_i| of them
};

/// Sums of chunks on their way through the workspace: the entry of monomial m, value channel c of a state head h and
/// slot is ((h slots + slot) D + m) e + c; that of a normaliser (h slots + slot) D + m.
struct ChunkSums {
  Global<float> sums, normaliser;  ///< ΔS, ΔZ of a chunk in units of 2^⌈end⌉
};

/// States before each chunk as tensor cores take them: T(x) of x = c_m 2^-p S, c_m the multinomial coefficient of
/// monomial m. Row r of R is that of state_rows.hpp: the entry of a value channel c is ((h slots + slot) R + r) e + c;
/// the normaliser is in three terms of T that add up to it, and 0, next to each other, from ((h slots + slot) R + r) 4
/// on.
template <class T>
struct Prefixes {
  Global<T> sums = {}, normaliser = {};  ///< normaliser null: not wanted in three terms
  Global<T> rest = {};  ///< of sums in two terms: T(x - T(x)), so that both miss x by u² of it. Null: only one is kept
  Global<float> whole = {};  ///< the normaliser of row r as a float, at (h slots + slot) R + r; null: not wanted
};

}  // namespace sympow::cuda
