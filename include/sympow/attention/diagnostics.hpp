// What a call can say about its rows.
#pragma once

#include <cmath>
#include <limits>
#include <numbers>

#include <sympow/core/concepts.hpp>
#include <sympow/core/resize.hpp>
#include <sympow/simd/scaled.hpp>

namespace sympow {

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
