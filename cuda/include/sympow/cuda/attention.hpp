// Symmetric-power attention of whole sequences.
#pragma once

#include <cstddef>

#include "state.hpp"

namespace sympow::cuda {

struct Inputs {
  ConstView queries;         ///< [B, T, Hq, d]
  ConstView keys;            ///< [B, T, Hk, d]
  ConstView values;          ///< [B, T, Hk, e]
  ConstView log_gates;       ///< [B, T, gate heads] of float: log γ ≤ 0, -∞ included; any multiple of 4 bytes apart
  ConstState initial_state;  ///< before the first token; null pointers: there is none
  ConstView beta = {};       ///< [B, T, Hk] of float, of rotary, finite; any multiple of 4 bytes apart. No data: all 1

  friend bool operator==(const Inputs&, const Inputs&) = default;
};

/// What an `attend` has left in its workspace for `attend_vjp` (RowGradients::forward): weights, and states before
/// chunks. It holds until something else is put into the workspace, and any number of gradients may be taken of it.
struct Forward {
  Problem problem = {};
  Inputs inputs = {};
  const void* workspace = nullptr;  ///< null: nothing was left
};

struct Outputs {
  View rows;          ///< [B, T, Hq, e]: Y; tokens beyond the length of a sequence are not written
  View condition;     ///< [B, T, Hq] of float, if wanted: see attend
  State final_state;  ///< after the last token, if wanted; it may be the memory of the initial one
  View factors = {};  ///< [B, T, Hq] of float, if wanted, of normalised rows: what attend_vjp needs of them
  Forward* forward =
      nullptr;  ///< on the host, if wanted; the workspace then has the bytes of `attention_vjp_workspace`
};

/// The form and chunk that `attend` takes for this problem: what it says, or what the cost model chooses. One that
/// leaves its states for gradients may take shorter chunks.
Status attention_form(const Problem& problem, Form& form, int& chunk) noexcept;

/// The bytes of the workspace of `attend`, whose pointer is aligned to 256 bytes. The chunked form keeps 4 D (e + 1) +
/// 2 D (e + 4) bytes for each chunk and state head, of floats 4 D (e + 4) in place of 2, of split states 2 D e more;
/// both forms 36 for each token and state head, and with rotary 8 and the bytes of a key for each token and key head.
Status attention_workspace(const Problem& problem, std::size_t& bytes) noexcept;

/// The rows Y of a problem, the state after the last token, and if wanted the condition of every row
///
///     κ_i = Σ_j b_ij (‖q_i‖ ‖k_j‖)^P / |Σ_j b_ij (q_i·k_j)^P|
///
/// where the numerator is over the tokens that the row reads through a state, those of earlier chunks and of the
/// initial state, of P 1 (d 64 and 128, 16 bits) of its own chunk before its 64 tokens, too: their part of the error of
/// a normalised row is proportional to it. Rows of a first chunk without a state have κ = 0, and errors of their own,
/// of weights rounded once. A row whose denominator is lost in rounding, as that of a zero query, is 0 and its
/// condition +∞. Input that is not finite shows in the rows that see it; a value also in rows of up to 128 tokens
/// before it, β in all later rows.
///
/// Nothing is allocated and nothing waits: the work is on the stream when this returns. Two runs give the same bits.
/// The arrays must not overlap, but for states; rows in the place of an input are refused, other overlaps are not seen.
/// Contents of lengths and offsets on the device are not checked.
///
///     std::size_t bytes;
///     if (auto status = attention_workspace(problem, bytes); !status.ok()) return fail(status.text());
///     // … allocate …
///     status = attend(problem, {q, k, v, gates}, {y}, workspace, bytes, stream);
Status attend(const Problem& problem, const Inputs& inputs, const Outputs& outputs, void* workspace, std::size_t bytes,
              Stream stream) noexcept;

}  // namespace sympow::cuda
