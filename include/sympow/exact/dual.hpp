// Dual numbers a + b ε, ε² = 0: derivatives of formulas without a step and without a rule written down.
#pragma once

#include <sympow/core/concepts.hpp>
#include <sympow/core/exact_scalar.hpp>

namespace SYMPOW_NAMESPACE::exact {

/// f(x + δ ε) = f(x) + (Df(x) δ) ε for every formula of +, -, × and ÷.
template <class S>
struct Dual {
  S value{0};  ///< f(x)
  S slope{0};  ///< Df(x) δ

  Dual() = default;
  Dual(const S& constant) : value(constant) {}                            ///< a constant
  explicit Dual(Index constant) : value(constant) {}                      ///< likewise
  Dual(const S& at, const S& direction) : value(at), slope(direction) {}  ///< a number x and its δ

  [[nodiscard]] friend Dual operator+(const Dual& a, const Dual& b) { return {a.value + b.value, a.slope + b.slope}; }
  [[nodiscard]] friend Dual operator-(const Dual& a, const Dual& b) { return {a.value - b.value, a.slope - b.slope}; }
  [[nodiscard]] friend Dual operator-(const Dual& a) { return {-a.value, -a.slope}; }
  [[nodiscard]] friend Dual operator*(const Dual& a, const Dual& b) {
    return {a.value * b.value, a.value * b.slope + a.slope * b.value};
  }
  [[nodiscard]] friend Dual operator/(const Dual& a, const Dual& b) {
    const S quotient = a.value / b.value;
    return {quotient, (a.slope - quotient * b.slope) / b.value};
  }
  Dual& operator+=(const Dual& other) { return *this = *this + other; }
  Dual& operator-=(const Dual& other) { return *this = *this - other; }
  Dual& operator*=(const Dual& other) { return *this = *this * other; }
  Dual& operator/=(const Dual& other) { return *this = *this / other; }
  [[nodiscard]] friend bool operator==(const Dual& a, const Dual& b) {
    return a.value == b.value && a.slope == b.slope;
  }
};

/// x + δ ε, entry by entry.
template <class S>
[[nodiscard]] Matrix<Dual<S>> along(const Matrix<S>& x, const Matrix<S>& direction) {
  Matrix<Dual<S>> result(x.rows(), x.cols());
  for (Index n = 0; n < x.size(); ++n) result.data()[n] = Dual<S>(x.data()[n], direction.data()[n]);
  return result;
}

/// The values of a matrix of dual numbers.
template <MatrixExpression X>
[[nodiscard]] auto values(const X& x) {
  using D = scalar_t<X>;
  return Matrix<decltype(D::value)>(x.unaryExpr([](const D& entry) { return entry.value; }));
}
/// Its slopes.
template <MatrixExpression X>
[[nodiscard]] auto slopes(const X& x) {
  using D = scalar_t<X>;
  return Matrix<decltype(D::slope)>(x.unaryExpr([](const D& entry) { return entry.slope; }));
}

}  // namespace SYMPOW_NAMESPACE::exact

namespace SYMPOW_NAMESPACE {
template <class S>
inline constexpr bool is_exact_scalar<exact::Dual<S>> = is_exact_scalar<S>;
}  // namespace SYMPOW_NAMESPACE

/// What Eigen asks of a scalar.
template <class S>
struct Eigen::NumTraits<sympow::exact::Dual<S>> : Eigen::NumTraits<S> {
  using Real = sympow::exact::Dual<S>;
  using NonInteger = Real;
  using Literal = Real;
  using Nested = Real;
  enum {
    IsInteger = 0,
    IsSigned = 1,
    IsComplex = 0,
    RequireInitialization = 1,
    ReadCost = 12,
    AddCost = 300,
    MulCost = 400
  };
};
