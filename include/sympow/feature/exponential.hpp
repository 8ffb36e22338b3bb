// κ(s) = exp(s): softmax attention, the dual side.
#pragma once

#include <sympow/feature/feature_map.hpp>

namespace SYMPOW_NAMESPACE {

/// The exponential score of softmax attention. It has no finite embedding, hence the attention form only; normalised by
/// default. Keep the transition of a linear system and swap the feature map for this one: that is its softmax dual.
struct Exponential {
  static constexpr Score score = Score::exponential;
  static constexpr bool nonnegative = true;
};

}  // namespace SYMPOW_NAMESPACE
