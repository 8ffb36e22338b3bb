// Real numbers between two rational ones: exponentials, cosines and sines that are enclosed, not rounded.
#pragma once

#include <algorithm>
#include <cmath>

#include <sympow/core/rational.hpp>

#ifdef SYMPOW_HAS_RATIONAL
namespace SYMPOW_NAMESPACE::exact {

/// low ≤ x ≤ high. Every operation encloses all that it can give.
struct Enclosure {
  Rational low, high;

  Enclosure(const Rational& x) : low(x), high(x) {}  ///< x itself
  Enclosure(const Rational& at_least, const Rational& at_most) : low(at_least), high(at_most) {}

  [[nodiscard]] Rational width() const { return high - low; }
  /// Whether some number is in both.
  [[nodiscard]] bool meets(const Enclosure& other) const { return low <= other.high && other.low <= high; }

  [[nodiscard]] friend Enclosure operator+(const Enclosure& a, const Enclosure& b) {
    return {a.low + b.low, a.high + b.high};
  }
  [[nodiscard]] friend Enclosure operator-(const Enclosure& a, const Enclosure& b) {
    return {a.low - b.high, a.high - b.low};
  }
  [[nodiscard]] friend Enclosure operator*(const Enclosure& a, const Enclosure& b) {
    const Rational ends[] = {a.low * b.low, a.low * b.high, a.high * b.low, a.high * b.high};
    return {*std::min_element(ends, ends + 4), *std::max_element(ends, ends + 4)};
  }
};

namespace detail {

/// Σ_{n < terms} x^n/n!, of the terms n = first, first + step, … with signs that alternate if step is 2; and what the
/// rest is at most: 2 |x|^terms/terms! for |x| ≤ terms/2.
[[nodiscard]] inline Enclosure series(const Rational& x, int first, int step, int terms) {
  Rational sum(0), term(1);
  for (int n = 0; n < terms; ++n) {
    if (n % step == first) sum += step == 2 && (n / 2) % 2 == 1 ? -term : term;
    term *= x / Rational(n + 1);
  }
  const Rational rest = Rational(2) * abs(term);
  return {sum - rest, sum + rest};
}

inline constexpr int terms_of_series = 60;

/// Throws `InvalidArgument` unless |x| ≤ 20.
inline void check_argument(const Rational& x) {
  if (Rational(20) < abs(x)) sympow::detail::raise<InvalidArgument>("enclosure: the argument must lie in -20 … 20");
}

}  // namespace detail

/// e^x for rational |x| ≤ 20, by Taylor's series with its remainder; for |x| ≤ 4 within 10^-45. Throws
/// `InvalidArgument`.
[[nodiscard]] inline Enclosure exponential(const Rational& x) {
  detail::check_argument(x);
  return detail::series(x, 0, 1, detail::terms_of_series);
}
/// cos x, likewise.
[[nodiscard]] inline Enclosure cosine(const Rational& x) {
  detail::check_argument(x);
  return detail::series(x, 0, 2, detail::terms_of_series);
}
/// sin x, likewise.
[[nodiscard]] inline Enclosure sine(const Rational& x) {
  detail::check_argument(x);
  return detail::series(x, 1, 2, detail::terms_of_series);
}

/// π within 10^-60, by Machin's 16 arctan 1/5 - 4 arctan 1/239.
[[nodiscard]] inline Enclosure pi() {
  const auto arctan = [](Index n) {  // of 1/n: what is left out of an alternating series is less than its next term
    Rational sum(0), power(1, n);
    for (Index k = 1; k < 90; k += 2) {
      sum += power / Rational(k % 4 == 1 ? k : -k);
      power /= Rational(n * n);
    }
    return Enclosure(sum - power, sum + power);
  };
  return Enclosure(16) * arctan(5) - Enclosure(4) * arctan(239);
}
/// √x of a rational x in 0 … 10^24, by Newton's steps from above. Throws `InvalidArgument`.
[[nodiscard]] inline Enclosure root(const Rational& x) {
  if (x.sign() < 0 || Rational(1000000000000) < x / Rational(1000000000000))
    sympow::detail::raise<InvalidArgument>("enclosure: the argument of a root must lie in 0 … 10^24");
  if (x.sign() == 0) return Rational(0);
  Rational above(std::lround(std::ldexp(std::sqrt(x.to_double()), 20)) + 1, 1 << 20);
  for (int n = 0; n < 3; ++n) above = (above + x / above) / Rational(2);  // from above, and never below
  return {x / above, above};
}
/// e^x for all x of an enclosure.
[[nodiscard]] inline Enclosure exponential(const Enclosure& x) {
  return {exponential(x.low).low, exponential(x.high).high};
}
/// cos x, likewise: its slope is at most 1.
[[nodiscard]] inline Enclosure cosine(const Enclosure& x) { return cosine(x.low) + Enclosure(-x.width(), x.width()); }
/// sin x, likewise.
[[nodiscard]] inline Enclosure sine(const Enclosure& x) { return sine(x.low) + Enclosure(-x.width(), x.width()); }

}  // namespace SYMPOW_NAMESPACE::exact
#endif
