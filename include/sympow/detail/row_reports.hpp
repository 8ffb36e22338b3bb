// What becomes of the sums of a row, and what is reported of them.
#pragma once

#include <cmath>
#include <numbers>

#include <sympow/attention/diagnostics.hpp>
#include <sympow/core/scaled.hpp>

namespace SYMPOW_NAMESPACE::detail {

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
