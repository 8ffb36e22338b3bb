// What a call of any form can choose, and what it can say about its rows.
#pragma once

#include <cmath>
#include <limits>
#include <numbers>

#include <sympow/attention/cost_model.hpp>
#include <sympow/core/concepts.hpp>
#include <sympow/core/resize.hpp>
#include <sympow/simd/scaled.hpp>

namespace sympow {

// ---- What a call of any form can choose

/// Rows divided by their sum: y_i = Σ_j s_ij v_j / Σ_j s_ij. For feature maps without negative scores.
struct Normalized {};

/// Rows as they are: y_i = Σ_j s_ij v_j.
struct Unnormalized {};

/// Rows of scores of either sign divided by their sum; weights can be negative and the sum can vanish. Name it to get
/// it.
struct SignedNormalized {};

/// `Normalized` where no score is negative, else `Unnormalized`.
struct DefaultNormalization {};

struct Diagnostics;  // see below

/// Which keys a query sees. Query i stands at token i + offset, key j at token j; the transition goes on to the last of
/// them. The query at token t sees the keys first(t), …, end(t) - 1 that exist. Neither falls as t grows.
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

// ---- What a call can say about its rows

/// One number a row, resized and filled by a call that is given them, see `Options::diagnostics`.
struct Diagnostics {
  Eigen::VectorXd log_sum;  ///< log |Σ_j s_ij|, -∞ where the row sees nothing
  /// K_i = Σ_j b_ij (|scale| ‖q_i‖ ‖k_j‖)^P / |Σ_j s_ij|, the row condition number. For an exponential score the weight
  /// of a pair is e^s (1 + |scale| ‖q‖ ‖k‖). Under channel decay this is an upper bound of K_i.
  Eigen::VectorXd condition;
  Eigen::Array<bool, Dynamic, 1> is_degenerate;  ///< whether the row has nothing to divide by, and is 0
};

}  // namespace sympow

namespace SYMPOW_NAMESPACE::detail {

/// Diagnostics of so many rows, of which none has seen anything yet.
inline void reset(Diagnostics& diagnostics, Index rows) {
  resize_safely(diagnostics.log_sum, rows);
  resize_safely(diagnostics.condition, rows);
  resize_safely(diagnostics.is_degenerate, rows);
  diagnostics.log_sum.setConstant(-std::numeric_limits<double>::infinity());
  diagnostics.condition.setZero();
  diagnostics.is_degenerate.setZero();
}

/// Σ_j s_ij v_j as it is, or divided by Σ_j s_ij of scores that are not negative, or of any sign.
enum class RowKind { sums, weighted_means, signed_means };

/// Σ_j s_ij = 2^exponent sum of a row, with a whole exponent; a sum of 0 where there is nothing to divide by.
struct RowSum {
  double sum = 0, exponent = 0;
};

/// What is reported of the rows of a call, each null where it is not asked for.
struct RowReports {
  Diagnostics* diagnostics = nullptr;
  RowSum* sums = nullptr;  ///< one a row; of powers that are not divided they mean nothing

  [[nodiscard]] bool wanted() const { return diagnostics != nullptr || sums != nullptr; }
  /// Of row `query` of the call, whose scores sum to 2^exponent `sum`, and absolutely to 2^exponent `absolute`.
  void report(Index query, double sum, double absolute, double exponent, bool is_degenerate) const {
    if (sums != nullptr) sums[query] = {is_degenerate ? 0 : sum, exponent};
    if (diagnostics == nullptr) return;
    const double size = std::abs(sum);
    diagnostics->log_sum[query] = size == 0 ? log2_zero : std::log(size) + exponent * std::numbers::ln2;
    diagnostics->condition[query] = absolute == 0 ? 0 : size == 0 ? -log2_zero : absolute / size;
    diagnostics->is_degenerate[query] = is_degenerate;
  }
};

}  // namespace SYMPOW_NAMESPACE::detail
