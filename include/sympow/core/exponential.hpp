// e^x entry by entry, with an exact 0.
#pragma once

#include <sympow/core/concepts.hpp>

namespace sympow::detail {

/// e^x of an array, 0 where that is below the normal numbers: those of packets end at e^-709 instead.
template <class X>
auto exponential(const X& x) {
  constexpr double least = -708;
  return (x > static_cast<typename X::Scalar>(least)).select(x.exp(), typename X::Scalar(0));
}

}  // namespace sympow::detail
