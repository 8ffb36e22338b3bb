// κ(s) = exp(s): softmax attention.
#pragma once

#include <sympow/feature/feature_map.hpp>

namespace SYMPOW_NAMESPACE {

/// The exponential score of softmax attention. No finite embedding, so the attention form only; normalized by default.
/// With the transition of a linear system it gives the softmax dual of that system.
struct Exponential {
  static constexpr Score score = Score::exponential;
  static constexpr bool nonnegative = true;
};

}  // namespace SYMPOW_NAMESPACE
