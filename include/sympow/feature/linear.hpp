// κ(s) = s: linear attention.
#pragma once

#include <sympow/feature/feature_map.hpp>

namespace SYMPOW_NAMESPACE {

/// The identity as a feature map: score s, φ(x) = x, D = d. Unnormalised by default, since scores may be negative.
/// Source: Transformers are RNNs (2020), with φ = id.
struct Linear {
  static constexpr Score score = Score::power;
  static constexpr int degree = 1;
  static constexpr bool nonnegative = false;

  [[nodiscard]] constexpr Index dimension(Index d) const { return d; }

  template <class X, class Y>
  void embed(const X& x, Y&& y) const {
    y = x;
  }
};

}  // namespace SYMPOW_NAMESPACE
