// e^x entry by entry: with an exact 0, and beyond the ends of the type.
#pragma once

#include <algorithm>
#include <cmath>
#include <numbers>

#include <sympow/core/concepts.hpp>

namespace SYMPOW_NAMESPACE::detail {

/// y_i ← e^{x_i - shift} of n numbers by packets, in bits that depend on neither n nor where they lie. y may be x.
template <class Scalar>
void set_exponential(Scalar* y, const Scalar* x, Index n, Scalar shift) {
  using Block = Eigen::Array<Scalar, 16, 1>;
  Index i = 0;
  for (; i + 16 <= n; i += 16) Block::Map(y + i) = (Block::Map(x + i) - shift).exp();
  if (i == n) return;
  Block rest = Block::Zero();
  std::copy(x + i, x + n, rest.data());
  rest = (rest - shift).exp();
  std::copy(rest.data(), rest.data() + (n - i), y + i);
}

/// y ← e^x of doubles likewise, exactly 0 where that is below e^-708: packets end at e^-709 instead.
template <class X, class Y>
void set_exponential(Y&& y, const X& x) {
  constexpr double least = 3.308e-308;  // a little above e^-708
  set_exponential<double>(y.data(), x.data(), y.size(), 0);
  for (Index i = 0; i < y.size(); ++i)
    if (y[i] < least) y[i] = 0;
}

/// x as whole · log 2 + rest, |rest| at most log 2 / 2 to rounding, or log 2 where a thread does not round to the
/// nearest: so e^x is e^rest 2^whole for any x. x = -∞ is whole = -∞, and a NaN stays one in the rest.
struct ReducedExponent {
  double whole, rest;

  /// With a whole number that is near x / log 2.
  ReducedExponent(double x, double n) : whole(n) {
    constexpr double ln2_high = 6.93147180369123816490e-01, ln2_low = 1.90821492927058770002e-10;  // log 2 to 85 bits
    rest = SYMPOW_ROUNDED(x - whole * ln2_high) - whole * ln2_low;
  }
  /// For |x| < 2^49, without a branch.
  static ReducedExponent of_near(double x) {
    constexpr double rounding = 0x1.8p52;  // it has no fraction, nor has what is added to it
    return {x, SYMPOW_ROUNDED(SYMPOW_ROUNDED(x * std::numbers::log2e + rounding) - rounding)};
  }
};
inline ReducedExponent reduced_exponent(double x) {
  constexpr double ln2 = std::numbers::ln2, beyond_ln2 = 2.319046813846299558e-17;  // together log 2 to 106 bits
  if (std::abs(x) < 0x1p19) return ReducedExponent::of_near(x);
  ReducedExponent reduced{0, 0};
  if (!std::isfinite(x)) {
    reduced.whole = std::isnan(x) ? 0 : x, reduced.rest = std::isnan(x) ? x : 0;
  } else {  // of products that are not numbers of the type
    reduced.whole = std::round(x * std::numbers::log2e);
    reduced.rest = std::clamp(std::fma(-reduced.whole, beyond_ln2, std::fma(-reduced.whole, ln2, x)), -ln2, ln2);
  }
  return reduced;
}

}  // namespace SYMPOW_NAMESPACE::detail
