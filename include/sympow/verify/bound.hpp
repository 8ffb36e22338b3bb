// What rounding explains of a residual: a number, what it is measured in, and why it is what it is.
#pragma once

#include <string>
#include <type_traits>
#include <utility>

#include <sympow/core/config.hpp>

namespace SYMPOW_NAMESPACE::verify {

/// A bound. Any number is one; one above 1 in units of the row rule should say why.
///
///     ledger.holds("mine", residual, {1 + steps * u, "every step rounds the angle", "row rule"}, "…", "A §2");
struct Bound {
  double value = 0;    ///< residuals up to here are explained
  std::string reason;  ///< why it is this large, for `--explain`
  std::string
      unit;  ///< what residual and bound are measured in: "row rule", "max|V|"; nothing for what the statement says

  /// Implicit, so that a number alone is a bound.
  Bound(double number = 0, std::string why = {}, std::string measured_in = {})
      : value(number), reason(std::move(why)), unit(std::move(measured_in)) {}
  operator double() const { return value; }  ///< the number alone
};

/// A bound and something more, for the same reason.
template <class Number>
  requires std::is_arithmetic_v<Number>
[[nodiscard]] Bound operator+(Bound bound, Number more) {
  bound.value += static_cast<double>(more);
  return bound;
}
template <class Number>
  requires std::is_arithmetic_v<Number>
[[nodiscard]] Bound operator+(Number more, Bound bound) {
  return std::move(bound) + more;
}

/// A statement, and what its residual is measured in.
struct Measured {
  std::string statement,  ///< without its unit
      unit;               ///< empty if the statement names none
};

/// Takes the unit off the end of a statement that names it:
///
///     "A = B, in units of the row rule" → "A = B", "row rule"
///     "A = B; relative to ‖A‖"          → "A = B", "relative to ‖A‖"
[[nodiscard]] inline Measured split_unit(const std::string& text) {
  for (const std::string last_word : {"relative", "ratio"})
    if (text.ends_with(", " + last_word) || text.ends_with("; " + last_word))
      return {text.substr(0, text.size() - last_word.size() - 2), last_word};
  for (const bool relative : {false, true}) {
    const std::string words = relative ? " relative to " : " in units of ";
    const std::size_t at = text.rfind(words);
    if (at == std::string::npos || at == 0 || (text[at - 1] != ',' && text[at - 1] != ';')) continue;
    std::string unit = text.substr(relative ? at + 1 : at + words.size());
    if (unit.find(';') != std::string::npos) continue;
    if (unit.starts_with("the ")) unit.erase(0, 4);
    if (const std::size_t space = unit.find("max |"); space != std::string::npos) unit.erase(space + 3, 1);
    return {text.substr(0, at - 1), unit};
  }
  return {text, {}};
}

/// The statement with its unit behind it, the inverse of `split_unit`.
[[nodiscard]] inline std::string with_unit(const std::string& statement, const std::string& unit) {
  if (unit.empty()) return statement;
  if (unit.starts_with("relative") || unit == "ratio") return statement + ", " + unit;
  return statement + ", in units of " + (unit.ends_with("row rule") ? "the " : "") + unit;
}

}  // namespace SYMPOW_NAMESPACE::verify
