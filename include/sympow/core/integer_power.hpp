// Whole powers by repeated squaring.
#pragma once

#include <sympow/core/config.hpp>

namespace sympow {

/// base^exponent for a whole exponent ≥ 0; base^0 is 1. Cost: at most 2 log2(exponent) multiplications.
template <class Scalar>
[[nodiscard]] constexpr Scalar integer_power(Scalar base, Index exponent) {
  if (exponent == 0) return Scalar(1);
  while (exponent % 2 == 0) {
    base = base * base;
    exponent /= 2;
  }
  Scalar result = base;
  while (exponent /= 2) {
    base = base * base;
    if (exponent % 2 == 1) result = result * base;
  }
  return result;
}

namespace detail {

/// The same as a functor, for `unaryExpr` over blocks of scores.
struct RaiseTo {
  int exponent;
  template <class Scalar>
  Scalar operator()(const Scalar& x) const {
    return integer_power(x, exponent);
  }
};

}  // namespace detail
}  // namespace sympow
