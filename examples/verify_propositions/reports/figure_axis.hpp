// The logarithmic axis of a figure of residuals, with places for 0 and infinity.
#pragma once

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include <sympow/verify/proposition.hpp>

namespace SYMPOW_NAMESPACE::verify::detail {

/// Text inside of XML.
[[nodiscard]] inline std::string xml(const std::string& text) {
  std::string result;
  for (const char c : text) {
    switch (c) {
      case '&':
        result += "&amp;";
        break;
      case '<':
        result += "&lt;";
        break;
      case '>':
        result += "&gt;";
        break;
      case '\'':
        result += "&apos;";
        break;
      case '"':
        result += "&quot;";
        break;
      default:
        result += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
    }
  }
  return result;
}

/// From 10^first to 10^last, a grid line every `every` decades, one of them at 1; 0 has a lane to the left, infinity
/// and what is no number to the right.
struct FigureAxis {
  static constexpr double lane = 20;  ///< pixels from the scale to a lane

  int first = -1, last = 1, every = 1;
  bool has_infinity = false;
  double width = 100;  ///< with the lanes

  FigureAxis() = default;
  /// Long enough for all residuals and bounds that are finite and not 0.
  FigureAxis(const std::vector<Proposition>& propositions, double pixels) : width(pixels) {
    double least = 1, most = 1;
    const auto add = [&](double x) {
      if (!std::isfinite(x))
        has_infinity = true;
      else if (x > 0)
        least = std::min(least, x), most = std::max(most, x);
    };
    for (const Proposition& p : propositions) {
      if (p.kind == Kind::documentation) continue;
      add(p.residual), add(p.bound);
      if (p.kind == Kind::erratum) add(p.corrected.residual), add(p.corrected.bound);
    }
    first = static_cast<int>(std::floor(std::log10(least)));
    last = std::max(static_cast<int>(std::ceil(std::log10(most))), first + 1);
    every = std::max((last - first + 6) / 7, 1);
  }

  /// Pixels from the left end.
  [[nodiscard]] double at(double x) const {
    const double right = has_infinity ? width - lane : width;
    if (x <= 0) return 4;
    if (!std::isfinite(x)) return width - 4;
    const double part = (std::log10(x) - first) / (last - first);
    return 4 + lane + std::clamp(part, 0., 1.) * (right - 4 - lane - 4);
  }
};

}  // namespace SYMPOW_NAMESPACE::verify::detail
