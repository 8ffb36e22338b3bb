// A feature map of one's own.
#pragma once

#include <sympow/feature/feature_map.hpp>

namespace sympow::test {

/// φ(x) = elu(x) + 1, by entry.
struct EluPlusOne {
  static constexpr Score score = Score::embedded;
  static constexpr bool nonnegative = true, nonnegative_entries = true;
  [[nodiscard]] Index dimension(Index d) const { return d; }
  template <class X, class Y>
  void embed(const X& x, Y&& y) const {
    y = (x.array() > 0).select(x.array() + 1, x.array().min(0).exp());
  }
};

}  // namespace sympow::test
