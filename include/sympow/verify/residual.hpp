// What a law finds: how large the worst violation is, what rounding explains of it, and where it is.
#pragma once

#include <cmath>
#include <ostream>
#include <sstream>
#include <string>

#include <sympow/core/config.hpp>

namespace SYMPOW_NAMESPACE::verify {

/// Size of a violation and what rounding excuses; the law holds if residual ≤ bound.
struct Residual {
  double residual = 0;    ///< size of the violation
  double bound = 0;       ///< what rounding explains
  std::string form = {};  ///< the form that it was found in, and after what; empty for a law that is not about forms
  Index row = -1;  ///< the token, counted from 0; -1 where nothing differs at all, and for a law that has no rows

  /// residual ≤ bound.
  [[nodiscard]] bool holds() const { return residual <= bound; }
};

/// "chunked, row 17: 3.2e+04 > 1".
inline std::ostream& operator<<(std::ostream& out, const Residual& found) {
  std::ostringstream numbers;
  numbers.precision(2);
  numbers << found.residual << (found.holds() ? " <= " : " > ") << found.bound;
  out << found.form;
  if (found.row >= 0) out << (found.form.empty() ? "" : ", ") << "row " << found.row;
  return out << (found.form.empty() && found.row < 0 ? "" : ": ") << numbers.str();
}

/// The one with the larger residual, of which none is larger than a NaN; the first of two equal ones.
[[nodiscard]] inline Residual worse(const Residual& a, const Residual& b) {
  return std::isnan(a.residual) || b.residual <= a.residual ? a : b;
}

}  // namespace SYMPOW_NAMESPACE::verify
