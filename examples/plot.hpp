// Figures in SVG: panels with logarithmic or linear axes, curves, points and a legend.
#pragma once

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iostream>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace plot {

using Points = std::vector<std::pair<double, double>>;

/// Colors that readers who cannot tell red from green tell apart (Okabe and Ito).
inline constexpr const char *blue = "#0072B2", *green = "#009E73", *orange = "#E69F00", *vermillion = "#D55E00",
                            *gray = "#888888";

/// 1e-3
inline std::string scientific(double exponent) { return "1e" + std::to_string(std::lround(exponent)); }

/// The number as it is.
inline std::string plain(double number) {
  std::ostringstream text;
  text << number;
  return text.str();
}

/// 0.001
inline std::string decimal(double exponent) { return plain(std::pow(10, exponent)); }

/// 1024
inline std::string power_of_two(double exponent) { return plain(std::exp2(exponent)); }

/// A logarithmic axis between two values, powers of the base where grid lines are to be drawn; a linear one if it is 0.
struct Axis {
  double first, last;
  double every;                  // powers between two grid lines; of a linear axis, their distance
  std::string (*label)(double);  // of a grid line: of its exponent, or of the value
  double base = 10;

  /// Exponent of a value, or the value.
  [[nodiscard]] double power(double value) const { return base > 0 ? std::log(value) / std::log(base) : value; }
  /// Where a value lies, 0 at `first` and 1 at `last`; values beyond them are drawn there.
  [[nodiscard]] double at(double value) const {
    return (power(std::clamp(value, first, last)) - power(first)) / (power(last) - power(first));
  }
  /// f(value, label) of every grid line.
  template <class F>
  void for_each_line(const F& f) const {
    const auto lines = static_cast<int>(std::floor((power(last) - power(first)) / every + 1e-6));
    for (int n = 0; n <= lines; ++n) {
      const double at = power(first) + n * every;
      f(base > 0 ? std::pow(base, at) : at, label(at));
    }
  }
};

/// Text at a place, with further attributes.
inline std::string text(double x, double y, const std::string& attributes, const std::string& words) {
  std::ostringstream svg;
  svg << "<text x='" << x << "' y='" << y << "'" << (attributes.empty() ? "" : " ") << attributes << ">" << words
      << "</text>";
  return svg.str();
}

/// One coordinate system, 330 × 260, and what is drawn in it.
class Panel {
 public:
  Panel(const std::string& title, const Axis& x, const std::string& name_of_x, const Axis& y,
        const std::string& name_of_y, double left)
      : x_(x), y_(y), left_(left) {
    svg_ << text(left + width / 2, top - 12, "text-anchor='middle' font-weight='bold'", title) << "\n";
    y.for_each_line([&](double value, const std::string& label) {
      const double at = height_of(value);
      svg_ << "<path d='M" << left << ' ' << at << "h" << width << "' stroke='#ddd'/>"
           << text(left - 6, at + 4, "text-anchor='end'", label) << "\n";
    });
    x.for_each_line([&](double value, const std::string& label) {
      const double at = place_of(value);
      svg_ << "<path d='M" << at << ' ' << top << "v" << height << "' stroke='#ddd'/>"
           << text(at, top + height + 16, "text-anchor='middle'", label) << "\n";
    });
    svg_ << text(left + width / 2, top + height + 34, "text-anchor='middle'", name_of_x) << "\n"
         << "<g transform='translate(" << left - 46 << ' ' << top + height / 2 << ") rotate(-90)'>"
         << text(0, 0, "text-anchor='middle'", name_of_y) << "</g>\n";
  }

  /// A line through points.
  void curve(const Points& points, const std::string& colour, const std::string& attributes = "") {
    svg_ << "<polyline fill='none' stroke-width='2' stroke='" << colour << "'" << (attributes.empty() ? "" : " ")
         << attributes << " points='";
    for (const auto& [x, y] : points) svg_ << place_of(x) << ',' << height_of(y) << ' ';
    svg_ << "'/>\n";
  }

  /// Dots.
  void dots(const Points& points, const std::string& colour) {
    svg_ << "<path stroke='" << colour << "' stroke-width='4' stroke-linecap='round' d='";
    for (const auto& [x, y] : points) svg_ << "M" << place_of(x) << ' ' << height_of(y) << "h0";
    svg_ << "'/>\n";
  }

  /// Crosses.
  void crosses(const Points& points, const std::string& colour) {
    svg_ << "<path fill='none' stroke='" << colour << "' stroke-width='2' d='";
    for (const auto& [x, y] : points) svg_ << "M" << place_of(x) - 5 << ' ' << height_of(y) - 5 << cross;
    svg_ << "'/>\n";
  }

  /// Words that begin at a point, some pixels away.
  void label(double x, double y, double right, double down, const std::string& words) {
    svg_ << text(place_of(x) + right, height_of(y) + down, "", words) << "\n";
  }

  [[nodiscard]] std::string svg() const { return svg_.str(); }

  static constexpr const char* cross = "l10 10m0 -10l-10 10";  ///< a path, from its upper left

 private:
  static constexpr double width = 330, height = 260, top = 60;

  [[nodiscard]] double place_of(double x) const { return left_ + width * x_.at(x); }
  [[nodiscard]] double height_of(double y) const { return top + height * (1 - y_.at(y)); }

  Axis x_, y_;
  double left_;
  std::ostringstream svg_;
};

/// A line of the legend: a path that begins at its left end, `attributes` for its colour, and what it stands for.
inline std::string legend(double x, double y, const std::string& path, const std::string& attributes,
                          const std::string& name) {
  std::ostringstream svg;
  svg << "<path d='M" << x << ' ' << y << path << "' " << attributes << "/>" << text(x + 32, y + 4, "", name) << "\n";
  return svg.str();
}

/// Writes a figure of 800 × `height`; says so on the error stream if that is not possible.
inline bool write(const std::string& program, const std::string& path, int height, const std::string& title,
                  const std::string& content) {
  std::ofstream out(path);
  out << "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 800 " << height
      << "' font-family='sans-serif' font-size='12'>\n"
      << "<rect width='800' height='" << height << "' fill='white'/>\n"
      << text(20, 22, "font-size='14'", title) << "\n"
      << content << "</svg>\n";
  if (out.flush()) return true;
  std::cerr << program << ": cannot write " << path << '\n';
  return false;
}

}  // namespace plot
