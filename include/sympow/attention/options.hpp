// What a call of any form can choose.
#pragma once

#include <limits>

#include <sympow/attention/cost_model.hpp>

namespace sympow {

/// Rows divided by their sum: y_i = Σ_j s_ij v_j / Σ_j s_ij. For feature maps without negative scores.
struct Normalized {};

/// Rows as they are: y_i = Σ_j s_ij v_j.
struct Unnormalized {};

/// Rows of scores of either sign divided by their sum; weights can be negative and the sum can vanish. Name it to get
/// it.
struct SignedNormalized {};

/// `Normalized` where no score is negative, else `Unnormalized`.
struct DefaultNormalization {};

struct Diagnostics;  // see diagnostics.hpp

/// Which keys a query sees. Query i stands at token i + offset, key j at token j; the transition goes on to the last of
/// them. The query at token t sees the keys first(t), …, end(t) - 1 that exist. Neither falls as t grows, and end(t) is
/// at most t + 1 unless the mask is full.
struct Mask {
  /// The window of a mask that has none.
  static constexpr Index unlimited = std::numeric_limits<Index>::max() / 4;

  Index offset = 0;          ///< tokens from the first key to the first query
  bool is_full = false;      ///< every query sees every key, earlier and later ones
  Index window = unlimited;  ///< tokens up to its own that a query sees

  /// The first key that the query at token t sees; below 0 where there is no earlier one.
  [[nodiscard]] constexpr Index first(Index t) const { return t - window + 1; }
  /// One behind the last key that it sees, if there are so many.
  [[nodiscard]] constexpr Index end(Index t) const { return is_full ? unlimited : t + 1; }
  /// Whether a query may not see some earlier key.
  [[nodiscard]] constexpr bool has_window() const { return window < unlimited; }
  /// Whether queries stand at their keys, one each.
  [[nodiscard]] constexpr bool is_aligned() const { return offset == 0 && !is_full; }
  /// Whether a state can stand for the keys that a query sees; if not, there is the attention form alone.
  [[nodiscard]] constexpr bool goes_with_states() const { return offset == 0 && !has_window(); }
  [[nodiscard]] friend bool operator==(const Mask&, const Mask&) = default;
};
/// Query i sees the keys j ≤ i + offset, those up to its own token. An offset of T_k - T_q lets the last query see all
/// keys; before token 0 a query sees nothing, and its row is 0. `causal(0)` is what a call does that says nothing, for
/// as many queries as keys.
[[nodiscard]] constexpr Mask causal(Index offset = 0) { return {offset, false}; }
/// Every query sees every key, from `offset` tokens after the first of them on. For transitions without decay that
/// leave keys alone or turn them: what a gate forgets has a direction.
[[nodiscard]] constexpr Mask full(Index offset = 0) { return {offset, true}; }
/// Query i sees the last `window` keys up to its own token, i + offset - window < j ≤ i + offset. It has the attention
/// form alone, at a cost of T · window.
[[nodiscard]] constexpr Mask sliding_window(Index window, Index offset = 0) { return {offset, false, window}; }

/// Run-time choices of a call.
struct Options {
  double scale = 1;                    ///< multiplies the logits: s = scale · qᵀ M k, inside the power
  Index chunk = 0;                     ///< tokens of a chunk in the chunked form; 0 is `cheapest_chunk`
  Diagnostics* diagnostics = nullptr;  ///< its three vectors of T are filled, if given; outputs do not depend on it
  Mask mask = causal();                ///< how queries and keys are aligned
  bool check_finite = false;           ///< throw `NotFinite` if Q, K or V holds a number that is not finite
  Index checkpoint = 0;  ///< gradients of the chunked form: a state is kept every so many chunks; 0 chooses
  Costs costs = {};      ///< by which chunks are chosen, and forms where the call leaves them open
};

}  // namespace sympow
