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

/// y ← e^x of doubles in [-28, 0] rounded to the scalar type: for float the power 64 of a series about the middle, without a case.
template <class X, class Y>
void set_moderate_exponential(Y& y, const X& x) {
  using Scalar = typename Y::Scalar;
  X exact;
  if constexpr (std::is_same_v<Scalar, float>) {
    constexpr double middle = -14, of_middle = 8.315287191035679e-7;
    const X z = (x - middle) * (1. / 64);
    exact =
        of_middle *
        ((((((((z * (1. / 40320) + 1. / 5040) * z + 1. / 720) * z + 1. / 120) * z + 1. / 24) * z + 1. / 6) * z + .5) *
              z +
          1.) *
             z +
         1.)
            .square()
            .square()
            .square()
            .square()
            .square()
            .square();
  } else {
    exact = x.exp();
  }
  y.resize(x.size());
  for (Index i = 0; i < x.size(); ++i) y[i] = static_cast<Scalar>(exact[i]);
}

}  // namespace sympow::detail
