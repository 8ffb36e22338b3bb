// Integer powers by repeated squaring.
#pragma once

#include <sympow/core/config.hpp>

namespace SYMPOW_NAMESPACE {

/// base^exponent for an integer exponent ≥ 0; base^0 = 1. Cost: at most 2 log2(exponent) multiplications.
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

/// x^P of a number or of every entry of an array.
template <int P, class X>
[[gnu::always_inline]] inline X power(const X& x) {
  if constexpr (P == 1) {
    return x;
  } else if constexpr (P % 2 == 0) {
    const X root = power<P / 2>(x);
    return root * root;
  } else {
    return power<P - 1>(x) * x;
  }
}

/// x^exponent as a functor, for `unaryExpr` over blocks of scores.
struct RaiseTo {
  int exponent;
  template <class Scalar>
  Scalar operator()(const Scalar& x) const {
    return integer_power(x, exponent);
  }
};

}  // namespace detail
}  // namespace SYMPOW_NAMESPACE
