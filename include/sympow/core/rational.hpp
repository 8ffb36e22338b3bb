// Rational numbers of any size as a scalar of Eigen's matrices, where GMP is installed; with SYMPOW_NO_RATIONAL defined
// it is not looked for.
#pragma once

#include <Eigen/Core>

#include <sympow/core/exact_scalar.hpp>

#if defined(__has_include) && !defined(SYMPOW_NO_RATIONAL)
#if __has_include(<gmp.h>)
#define SYMPOW_HAS_RATIONAL 1
#endif
#endif

#ifdef SYMPOW_HAS_RATIONAL
#include <gmp.h>

#include <concepts>
#include <ostream>
#include <string>

#include <sympow/core/checks.hpp>

namespace SYMPOW_NAMESPACE {

/// A rational number, always in lowest terms. Operations return numbers and no expressions, as Eigen needs it of a
/// scalar.
///
/// There is no conversion from a floating-point number, which would hide a rounding, and none to one but `to_double`.
/// Division by 0 throws `InvalidArgument`. Link with GMP: `sympow::exact` of CMake, or `-lgmp`.
class Rational {
 public:
  Rational() { mpq_init(value_); }
  /// An integer.
  template <std::integral Integer>
    requires(sizeof(Integer) <= sizeof(long))
  Rational(Integer value) : Rational() {
    if constexpr (std::unsigned_integral<Integer>)
      mpq_set_ui(value_, value, 1);
    else
      mpq_set_si(value_, value, 1);
  }
  Rational(std::floating_point auto) = delete;  ///< a number that was rounded

  /// n/d.
  Rational(long n, long d) : Rational(Rational(n) / Rational(d)) {}
  template <class N, class D>
    requires(std::floating_point<N> || std::floating_point<D>)
  Rational(N, D) = delete;  ///< likewise

  Rational(const Rational& other) : Rational() { mpq_set(value_, other.value_); }
  /// The other one can then only be assigned to.
  Rational(Rational&& other) noexcept {
    *value_ = *other.value_;
    mpz_init(mpq_numref(other.value_)), mpz_init(mpq_denref(other.value_));  // which ask for no memory
  }
  Rational& operator=(const Rational& other) { return mpq_set(value_, other.value_), *this; }
  Rational& operator=(Rational&& other) noexcept { return mpq_swap(value_, other.value_), *this; }
  ~Rational() { mpq_clear(value_); }

  [[nodiscard]] friend Rational operator+(const Rational& a, const Rational& b) { return by(mpq_add, a, b); }
  [[nodiscard]] friend Rational operator-(const Rational& a, const Rational& b) { return by(mpq_sub, a, b); }
  [[nodiscard]] friend Rational operator*(const Rational& a, const Rational& b) { return by(mpq_mul, a, b); }
  [[nodiscard]] friend Rational operator/(const Rational& a, const Rational& b) {
    if (b.sign() == 0) detail::raise<InvalidArgument>("Rational: division by 0");
    return by(mpq_div, a, b);
  }
  [[nodiscard]] friend Rational operator-(const Rational& a) {
    Rational result;
    mpq_neg(result.value_, a.value_);
    return result;
  }
  [[nodiscard]] friend Rational operator+(const Rational& a) { return a; }
  Rational& operator+=(const Rational& other) { return mpq_add(value_, value_, other.value_), *this; }
  Rational& operator-=(const Rational& other) { return mpq_sub(value_, value_, other.value_), *this; }
  Rational& operator*=(const Rational& other) { return mpq_mul(value_, value_, other.value_), *this; }
  Rational& operator/=(const Rational& other) { return *this = *this / other; }

  [[nodiscard]] friend bool operator==(const Rational& a, const Rational& b) {
    return mpq_equal(a.value_, b.value_) != 0;
  }
  [[nodiscard]] friend bool operator<(const Rational& a, const Rational& b) { return mpq_cmp(a.value_, b.value_) < 0; }
  [[nodiscard]] friend bool operator>(const Rational& a, const Rational& b) { return b < a; }
  [[nodiscard]] friend bool operator<=(const Rational& a, const Rational& b) { return !(b < a); }
  [[nodiscard]] friend bool operator>=(const Rational& a, const Rational& b) { return !(a < b); }
  [[nodiscard]] friend Rational abs(const Rational& a) { return a.sign() < 0 ? -a : a; }

  [[nodiscard]] int sign() const { return mpz_sgn(mpq_numref(value_)); }  ///< -1, 0 or 1
  [[nodiscard]] std::string text() const {                                ///< "-2/3"
    std::string digits(mpz_sizeinbase(mpq_numref(value_), 10) + mpz_sizeinbase(mpq_denref(value_), 10) + 3, ' ');
    mpq_get_str(digits.data(), 10, value_);
    digits.resize(digits.find('\0'));
    return digits;
  }
  [[nodiscard]] double to_double() const { return mpq_get_d(value_); }  ///< rounded towards 0
  friend std::ostream& operator<<(std::ostream& out, const Rational& a) { return out << a.text(); }

 private:
  [[nodiscard]] static Rational by(void (*operation)(mpq_ptr, mpq_srcptr, mpq_srcptr), const Rational& a,
                                   const Rational& b) {
    Rational result;
    operation(result.value_, a.value_, b.value_);
    return result;
  }

  mpq_t value_;
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
