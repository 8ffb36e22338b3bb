// Gradients of symmetric-power attention.
#pragma once

#include "attention.hpp"

namespace sympow::cuda {

/// What comes back to the rows of an `attend`, and what that call left of them.
struct RowGradients {
  ConstView d_rows;             ///< [B, T, Hq, e]: dY, of the problem's element
  ConstView rows = {};          ///< Y, as `attend` wrote it; of normalised rows, as the next, or for d scale
  ConstView factors = {};       ///< [B, T, Hq] of float: Outputs::factors
  ConstState final_state = {};  ///< what comes back to the final state, if anything does: see attend_vjp
  /// What the `attend` of the same problem and inputs has left in this workspace: its weights and states are not made
  /// again, and the initial state is not read again. Null: they are.
  const Forward* forward = nullptr;
};

/// Of queries, keys and values in the problem's element, laid out like these; tokens beyond the length of a sequence
/// are not written. Of log gates and β in float, of rates in double, if wanted.
struct Gradients {
  View queries;              ///< [B, T, Hq, d]
  View keys;                 ///< [B, T, Hk, d]
  View values;               ///< [B, T, Hk, e]
  View log_gates = {};       ///< [B, T, gate heads]
  State initial_state = {};  ///< if wanted: see attend_vjp; it may be the memory of RowGradients::final_state
  View beta = {};            ///< [B, T, Hk], of rotary
  double* rates = nullptr;   ///< [d/2] on the device, of rotary: over all sequences and heads
  double* scale = nullptr;   ///< likewise one number, 0 of normalised rows; of others `rows` must be given for it
};

/// The bytes of the workspace of `attend_vjp`, whose pointer is aligned to 256 bytes: that of the `attend`, and for
/// each token 2 (d + e) + 52 a query head and 2 d a key head; 8 more for each block of 64 tokens, and for each two of
/// them, of a chunk and query head, in the quadratic form of a sequence. The chunked form keeps 2 D e + 8 D bytes more
/// for each chunk and state head, and 16 of a token. Of floats it is 4 in the place of each 2 so far, of split states 4
/// D e. With rotary there are 16 + d/16 more of a query head and token, 16 + 4 d + d/16 of a key head, twice 8 + 4 d in
/// the chunked form, and as many for two blocks as said.
Status attention_vjp_workspace(const Problem& problem, std::size_t& bytes) noexcept;

/// The gradients of Σ dY∘Y, Y the rows of `attend` of the same problem and inputs, and thus of the same form and
/// chunks:
///
///     dq_i = Σ_j dx_ij scale k_j    dk_j = Σ_i dx_ij scale q_i    dv_j = Σ_i p_ij dy_i    d log γ_t = Σ_{j<t≤i} t_ij
///     d scale = P / scale Σ_i dy_i·y_i, y as it was rounded, thus finite; of a scale of 0 only for P > 1
///     dβ_t = Σ_{j<t≤i} Σ_u rates_u f_iju    d rates_u = Σ_{j<t≤i} β_t f_iju    f_iju = dx_ij scale ⟨k_j, J_u q_i⟩
///
/// with s_ij = b_ij x_ij^P, x_ij = scale q_i·k_j, p_ij = s_ij / Σ_j s_ij, c_ij = dy_i·v_j - dy_i·y_i, t_ij = p_ij c_ij
/// and dx_ij = P t_ij / x_ij; of rows that are not normalised p = s and c_ij = dy_i·v_j. With rotary q, k are turned
/// ones here, J_u turns pair u by a quarter, and dq, dk turn back. Heads that share keys, values or gates are summed in
/// order: two runs give the same bits. But for a gauge no sum is a difference of sums: a gate of 0 has the gradient 0.
/// Rows without weight have no gradient, and their dy changes nothing. Input that is not finite shows in the gradients
/// that it is part of, and may in those of 64 tokens around it.
///
/// Gradients of states are as states are (State): what comes back to the final state, dS = Σ_i w_i φ(q_i) dn_iᵀ and dZ
/// = Σ_i w_i φ(q_i) δ_i over later rows, dn and δ what comes back to numerator and normaliser, w the product of the
/// gates up to the row; and so what goes back to the initial one. ∂loss/∂S_m is that times the multinomial coefficient
/// of monomial m. `mass` is at least |dS_m|, |dZ_m| and says how they are rounded. So two calls with both between them
/// have the gradients of one. With rotary `turns` of a gradient, which state_in has set and a caller fills, is what a
/// turn of the whole sequence in pair u changes, per radian,
///
///     gauge_u = Σ (∂loss/∂μ_u + ⟨∂loss/∂S, L_u S⟩)     over the states of a key head, Z as one more channel
///
/// with L_u S the derivative of S as its keys turn. Null, it is 0 of the final state and not wanted of the initial one.
/// It is the same before and behind every token, and 0 of a loss that sees states through later rows alone. Each dβ_t
/// has Σ_u rates_u gauge_u more, each d rates_u Σ_t β_t gauge_u. In the chunked form states between chunks and their
/// gradients are rounded to the problem's element, or kept as `Problem::states` says.
///
/// Each p_ij and dx_ij is rounded to the problem's element, as are the gradients; sums are in float, those of gates and
/// angles in double. Values must be below 2^128 / e. Nothing is allocated and nothing waits. Cost of a pair of tokens
/// and query head: 4 d + 2 e operations for dq, 4 d + 4 e for dk and dv; of a state 2 D e of a query, 4 D e of a key,
/// and 4 D e to make both.
Status attend_vjp(const Problem& problem, const Inputs& inputs, const RowGradients& rows, const Gradients& gradients,
                  void* workspace, std::size_t bytes, Stream stream) noexcept;

/// The gradient of a loss in arrays of states, as attend_vjp takes it, each entry rounded once. `state` is the one that
/// it is a gradient in, the final one, of which turns are made; where `gradient` has none it may be without arrays.
/// Cost: that of `state_of_arrays`; of turns 2 P times the arrays and the state, read as floats and added up in double.
Status gradient_of_arrays(const Problem& problem, const StateArrays& arrays, const ConstState& state,
                          const State& gradient, Stream stream) noexcept;

/// The other way, in the initial state; a `state` without arrays is an empty one. Of the states of a key head the first
/// has all that comes back to their angles, the others 0.
Status gradient_to_arrays(const Problem& problem, const ConstState& gradient, const ConstState& state,
                          const StateArrays& arrays, Stream stream) noexcept;

}  // namespace sympow::cuda
