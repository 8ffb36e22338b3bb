// e^x entry by entry, with an exact 0.
#pragma once

#include <sympow/core/concepts.hpp>

namespace sympow::detail {

/// y ← e^x of doubles by packets, exactly 0 where that is below e^-708: packets end at e^-709 instead. y may be x.
template <class X, class Y>
void set_exponential(Y&& y, const X& x) {
  constexpr double least = 3.308e-308;  // a little above e^-708
  y.array() = x.array().exp();
  for (Index i = 0; i < y.size(); ++i)
    if (y[i] < least) y[i] = 0;
}

}  // namespace sympow::detail
