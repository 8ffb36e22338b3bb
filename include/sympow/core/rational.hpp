// Rational numbers of any size as a scalar of Eigen's matrices, where GMP is installed; with SYMPOW_NO_RATIONAL defined
// it is not looked for.
#pragma once

#include <Eigen/Core>

#include <sympow/core/exact_scalar.hpp>

#if defined(__has_include) && !defined(SYMPOW_NO_RATIONAL)
#if __has_include(<gmpxx.h>)
#define SYMPOW_HAS_RATIONAL 1
#endif
#endif

#ifdef SYMPOW_HAS_RATIONAL
#include <gmpxx.h>

#include <concepts>
#include <ostream>
#include <string>
#include <utility>

#include <sympow/core/checks.hpp>

namespace SYMPOW_NAMESPACE {

/// A rational number, always in lowest terms. Operations return numbers and no expressions, as Eigen needs it of a
/// scalar.
///
/// There is no conversion from a floating-point number, which would hide a rounding, and none to one but `to_double`.
/// Division by 0 throws `InvalidArgument`. Link with GMP: `sympow::exact` of CMake, or `-lgmp`.
class Rational {
 public:
  Rational() = default;
  /// An integer.
  template <std::integral Integer>
    requires(sizeof(Integer) <= sizeof(long))
  Rational(Integer value)
      : value_(static_cast<std::conditional_t<std::unsigned_integral<Integer>, unsigned long, long>>(value)) {}
  Rational(std::floating_point auto) = delete;  ///< a number that was rounded

  /// n/d.
  Rational(long n, long d) : Rational(Rational(n) / Rational(d)) {}
  template <class N, class D>
    requires(std::floating_point<N> || std::floating_point<D>)
  Rational(N, D) = delete;  ///< likewise

  [[nodiscard]] friend Rational operator+(const Rational& a, const Rational& b) {
    return Rational(a.value_ + b.value_);
  }
  [[nodiscard]] friend Rational operator-(const Rational& a, const Rational& b) {
    return Rational(a.value_ - b.value_);
  }
  [[nodiscard]] friend Rational operator*(const Rational& a, const Rational& b) {
    return Rational(a.value_ * b.value_);
  }
  [[nodiscard]] friend Rational operator/(const Rational& a, const Rational& b) {
    if (b.sign() == 0) detail::raise<InvalidArgument>("Rational: division by 0");
    return Rational(a.value_ / b.value_);
  }
  [[nodiscard]] friend Rational operator-(const Rational& a) { return Rational(-a.value_); }
  [[nodiscard]] friend Rational operator+(const Rational& a) { return a; }
  Rational& operator+=(const Rational& other) { return value_ += other.value_, *this; }
  Rational& operator-=(const Rational& other) { return value_ -= other.value_, *this; }
  Rational& operator*=(const Rational& other) { return value_ *= other.value_, *this; }
  Rational& operator/=(const Rational& other) { return *this = *this / other; }

  [[nodiscard]] friend bool operator==(const Rational& a, const Rational& b) { return a.value_ == b.value_; }
  [[nodiscard]] friend bool operator<(const Rational& a, const Rational& b) { return a.value_ < b.value_; }
  [[nodiscard]] friend bool operator>(const Rational& a, const Rational& b) { return b < a; }
  [[nodiscard]] friend bool operator<=(const Rational& a, const Rational& b) { return !(b < a); }
  [[nodiscard]] friend bool operator>=(const Rational& a, const Rational& b) { return !(a < b); }
  [[nodiscard]] friend Rational abs(const Rational& a) { return a.sign() < 0 ? -a : a; }

  [[nodiscard]] int sign() const { return sgn(value_); }               ///< -1, 0 or 1
  [[nodiscard]] std::string text() const { return value_.get_str(); }  ///< "-2/3"
  [[nodiscard]] double to_double() const { return value_.get_d(); }    ///< rounded towards 0
  friend std::ostream& operator<<(std::ostream& out, const Rational& a) { return out << a.text(); }

 private:
  explicit Rational(mpq_class value) : value_(std::move(value)) {}
  mpq_class value_;
};

template <>
inline constexpr bool is_exact_scalar<Rational> = true;

}  // namespace SYMPOW_NAMESPACE

/// What Eigen asks of a scalar.
template <>
struct Eigen::NumTraits<sympow::Rational> : Eigen::GenericNumTraits<sympow::Rational> {
  using Real = sympow::Rational;
  using NonInteger = sympow::Rational;
  using Literal = sympow::Rational;
  using Nested = sympow::Rational;
  enum {
    IsInteger = 0,
    IsSigned = 1,
    IsComplex = 0,
    RequireInitialization = 1,
    ReadCost = 6,
    AddCost = 150,
    MulCost = 100
  };
  static Real epsilon() { return 0; }
  static Real dummy_precision() { return 0; }
  static int digits10() { return 0; }
};
#endif
