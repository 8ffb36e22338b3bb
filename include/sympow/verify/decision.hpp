// How a statement was decided: exactly, by enclosures, or within a bound that rounding explains.
#pragma once

#include <cmath>
#include <cstdlib>
#include <string>

#include <sympow/core/config.hpp>

namespace SYMPOW_NAMESPACE::verify {

/// What a verdict rests on.
enum class Method {
  bound,      ///< a residual in floating point, beside what rounding or chance explains
  certified,  ///< real numbers enclosed by intervals with rational ends
  exact       ///< rational arithmetic: the residual is 0, or the statement is false
};

/// "exactly", "certified" or "within a bound".
[[nodiscard]] inline std::string name_of(Method method) {
  return method == Method::exact ? "exactly" : method == Method::certified ? "certified" : "within a bound";
}

/// What came out of a decision without rounding.
struct Decision {
  Method method = Method::bound;  ///< how it was decided
  bool refuted = false;           ///< a case was found in which the statement is false
  std::string domain;             ///< what was tried: "d = 2, 3; T = 3, 5; 20 seeds each"
  std::string residual = "0";     ///< of the counterexample: "-2/3"
  std::string counterexample;     ///< its inputs and both sides, minimised; empty if nothing refutes
  int integers = 0;               ///< how many of its inputs are not 0

  /// Whether something was decided without rounding.
  [[nodiscard]] bool is_made() const { return method != Method::bound; }

  /// |residual| rounded to double, 0 only if nothing refutes.
  [[nodiscard]] double size() const {
    if (!refuted) return 0;
    const std::size_t slash = residual.find('/');
    const double top = std::abs(std::strtod(residual.c_str(), nullptr)),
                 bottom = slash == std::string::npos ? 1 : std::strtod(residual.c_str() + slash + 1, nullptr);
    return top / bottom > 0 ? top / bottom : 1;
  }
};

}  // namespace SYMPOW_NAMESPACE::verify
