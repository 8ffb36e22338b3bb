// What a call can say about its rows.
#pragma once

#include <sympow/core/concepts.hpp>

namespace sympow {

/// 3 × T numbers, one column a token:
///
///     log |Σ_j s_ij|
///     K_i = Σ_j b_ij (|scale| ‖q_i‖ ‖k_j‖)^P / |Σ_j s_ij|, the row condition number
///     1 if degenerate, else 0
///
/// For an exponential score the weight of a pair in K_i is e^s (1 + |scale| ‖q‖ ‖k‖). Under channel decay K_i is an
/// upper bound.
struct Diagnostics : Eigen::Matrix<double, 3, Dynamic> {
  using Base = Eigen::Matrix<double, 3, Dynamic>;
  using Base::Base;
  using Base::operator=;
};

}  // namespace sympow
