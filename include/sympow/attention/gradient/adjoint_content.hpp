// What goes back with a sequence in the place of a state.
#pragma once

#include <sympow/attention/folded_sums.hpp>

namespace SYMPOW_NAMESPACE::detail {

/// H = [dS; dZ], 2^M times its numbers as those of a state, and the gauge, see `StateGradient`.
template <class Scalar>
struct AdjointContent {
  FoldedSums<Scalar> sums;
  Eigen::VectorXd gauge = {};
  Eigen::VectorXd frame = {};  ///< dμ
  bool has_gauge = false;      ///< or the gauge is yet to be made of dμ
};

}  // namespace SYMPOW_NAMESPACE::detail
