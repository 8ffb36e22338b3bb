// What a call can say about its rows.
#pragma once

#include <limits>

#include <sympow/core/concepts.hpp>
#include <sympow/core/resize.hpp>

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

}  // namespace SYMPOW_NAMESPACE::detail
