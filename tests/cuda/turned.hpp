// Rotary in double: by what tokens of a test turn, what rows become, and how far kernels may be off.
#pragma once

#include <cmath>
#include <functional>
#include <numbers>
#include <vector>

namespace sympow::test {

/// Rates, β of token t and key head h, and the angles before the first token.
struct Rotation {
  bool halves = false;
  std::function<double(int)> beta = {};  ///< of t + h; none: 1
  double begin = 0;                      ///< 0: no state with angles

  static double rate(int j, int pairs) { return std::pow(50., -static_cast<double>(j) / pairs); }
  /// In turns, at most half a one.
  [[nodiscard]] double turns(int b, int h, int j) const {
    return std::remainder(begin * (1 + .37 * j + .21 * b + .11 * h), 1);
  }
  [[nodiscard]] double step(int t, int h) const { return beta ? double{static_cast<float>(beta(t + h))} : 1; }
};

/// The channels of pair j of d/2.
struct PairOfChannels {
  std::size_t first, second;
  PairOfChannels(bool halves, int d, int j)
      : first(static_cast<std::size_t>(halves ? j : 2 * j)),
        second(halves ? first + static_cast<std::size_t>(d / 2) : first + 1) {}
};

/// d channels from x on turn: pair j by angle(j), in radians.
template <class Angle>
void turn_row(double* x, int d, bool halves, const Angle& angle) {
  for (int j = 0; j < d / 2; ++j) {
    const PairOfChannels at(halves, d, j);
    const double a = x[at.first], b = x[at.second], c = std::cos(angle(j)), s = std::sin(angle(j));
    x[at.first] = c * a - s * b, x[at.second] = s * a + c * b;
  }
}

/// How far the entries of a turned row may be off: 6 units of float of the norm of their pair, as turns.hpp has it, and
/// what follows of rounding them to a format, u of their size and η.
inline std::vector<double> turned_off(const double* x, int d, bool halves, double u, double least) {
  std::vector<double> off(static_cast<std::size_t>(d));
  for (int j = 0; j < d / 2; ++j) {
    const PairOfChannels at(halves, d, j);
    const double norm = std::hypot(x[at.first], x[at.second]), of_turn = 6 * 0x1p-24 * norm;
    for (const std::size_t c : {at.first, at.second})
      off[c] = norm == 0 ? 0 : of_turn + u * (std::abs(x[c]) + of_turn) + least;
  }
  return off;
}

}  // namespace sympow::test
