// Integer powers by repeated squaring.
#pragma once

#include <sympow/core/config.hpp>

namespace SYMPOW_NAMESPACE {

namespace detail {
template <class X>
[[nodiscard, gnu::always_inline]] constexpr X positive_power(X base, Index exponent) {
  while (exponent % 2 == 0) {
    base = base * base;
    exponent /= 2;
  }
  X result = base;
  while (exponent /= 2) {
    base = base * base;
    if (exponent % 2 == 1) result = result * base;
  }
  return result;
}
}  // namespace detail

/// base^exponent for an integer exponent ≥ 0; base^0 = 1. Cost: at most 2 log2(exponent) multiplications.
template <class Scalar>
[[nodiscard]] constexpr Scalar integer_power(Scalar base, Index exponent) {
  return exponent == 0 ? Scalar(1) : detail::positive_power(base, exponent);
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

/// x ↦ x^exponent of numbers and of lanes, for an exponent > 0 and for one that the compiler knows; `lower` is the
/// power below, of an exponent > 1.
struct RaiseTo {
  int exponent;
  template <class X>
  [[gnu::always_inline]] X operator()(const X& x) const {
    return positive_power(x, exponent);
  }
  [[nodiscard]] RaiseTo lower() const { return {exponent - 1}; }
};
template <int P>
struct FixedPower {
  static constexpr int exponent = P;
  template <class X>
  [[gnu::always_inline]] X operator()(const X& x) const {
    return power<P>(x);
  }
  [[nodiscard]] FixedPower<P - 1> lower() const { return {}; }
};

}  // namespace detail
}  // namespace SYMPOW_NAMESPACE
