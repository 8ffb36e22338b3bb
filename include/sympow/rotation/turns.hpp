// Sines and cosines of many angles at once, and pairs of coordinates that turn by them.
#pragma once

#include <algorithm>
#include <cmath>
#include <complex>
#include <numbers>

#include <sympow/core/concepts.hpp>

namespace sympow {

/// Which coordinates form pair j of d/2 (0-based): 2j and 2j + 1 (the papers, GPT-J), or j and j + d/2 (GPT-NeoX, LLaMA).
enum class Pairing { interleaved, half_split };

/// An angle in radians reduced to [-π, π].
[[nodiscard]] inline double reduced_angle(double angle) { return std::remainder(angle, 2 * std::numbers::pi); }

namespace detail {

/// Turns pair j of the column x by the angle with the given cosine and sine.
template <class Column, class Scalar>
void turn_pair(Column&& x, Index j, Pairing pairing, Scalar cosine, Scalar sine) {
  const Index first = pairing == Pairing::interleaved ? 2 * j : j;
  const Index second = pairing == Pairing::interleaved ? 2 * j + 1 : j + x.size() / 2;
  const Scalar a = x[first], b = x[second];
  x[first] = cosine * a - sine * b;
  x[second] = sine * a + cosine * b;
}

/// Turns some of the `pairs` of a column whose entries lie side by side, from pair `begin` on, `turns` being the e^{iθ_j}: pairs of
/// neighbours as complex numbers, those of the halves by the handful.
template <class Scalar>
void turn_pairs(Scalar* x, Index pairs, Pairing pairing, Index begin, Index count, const std::complex<Scalar>* turns,
                const Scalar* cosine, const Scalar* sine) {
  using Complex = Eigen::Array<std::complex<Scalar>, Dynamic, 1>;
  if (pairing == Pairing::interleaved) {
    Eigen::Map<Complex>(reinterpret_cast<std::complex<Scalar>*>(x) + begin, count) *=
        Eigen::Map<const Complex>(turns, count);
    return;
  }
  constexpr Index together = 8;
  using Some = Eigen::Array<Scalar, together, 1>;
  Scalar *first = x + begin, *second = x + pairs + begin;
  Index j = 0;
  for (; j + together <= count; j += together) {
    const Some a = Some::Map(first + j), b = Some::Map(second + j), c = Some::Map(cosine + j), s = Some::Map(sine + j);
    Some::Map(first + j) = c * a - s * b;
    Some::Map(second + j) = s * a + c * b;
  }
  Eigen::Map<Vector<Scalar>> column(x, 2 * pairs);
  for (; j < count; ++j) turn_pair(column, begin + j, pairing, cosine[j], sine[j]);
}

/// Angles that are turned by together.
inline constexpr Index angles_at_once = 16;
using SomeAngles = Eigen::Array<double, angles_at_once, 1>;

/// cos μ and sin μ of angles in [-π, π] to about a rounding, without a branch: with m the nearest number of right angles the series of
/// μ - m π/2 are turned by m of them.
inline void cosines_and_sines(const SomeAngles& mu, SomeAngles& cosines, SomeAngles& sines) {
  constexpr double high = 0x1.921fb54442d18p0, low = 0x1.1a62633145c07p-54;  // π/2 as two numbers
  const SomeAngles m = (mu * (2 * std::numbers::inv_pi)).rint(), turns = m.square();
  const SomeAngles r = (mu - m * high) - m * low, x = r.square();
  constexpr auto over = [](int n) {
    double factorial = 1;
    for (int k = 2; k <= n; ++k) factorial *= k;
    return 1 / factorial;
  };
  const SomeAngles sine =
      r -
      r * x *
          (over(3) - x * (over(5) - x * (over(7) - x * (over(9) - x * (over(11) - x * (over(13) - x * over(15)))))));
  const SomeAngles cosine =
      1 - x * (over(2) -
               x * (over(4) -
                    x * (over(6) - x * (over(8) - x * (over(10) - x * (over(12) - x * (over(14) - x * over(16))))))));
  const SomeAngles cosine_of_turns = (6 - turns * (7 - turns)) / 6, sine_of_turns = m * (4 - turns) / 3;  // 0 or ±1
  cosines = cosine * cosine_of_turns - sine * sine_of_turns;
  sines = sine * cosine_of_turns + cosine * sine_of_turns;
}

/// Turns queries and keys of one token by the same angles, which go on from μ to μ + steps, reduced to [-π, π].
template <class Scalar, class Steps>
void turn_on(Eigen::VectorXd& mu, const Steps& steps, Pairing pairing, Scalar* query, Scalar* key) {
  const Index pairs = mu.size();
  for (Index begin = 0; begin < pairs; begin += angles_at_once) {
    const Index count = std::min(angles_at_once, pairs - begin);
    SomeAngles angles = SomeAngles::Zero(), cosines, sines;
    angles.head(count) = mu.array().segment(begin, count) + steps.array().segment(begin, count);
    if ((angles.abs() <= 1000).all()) {  // few turns, of which the two parts are exact
      constexpr double turn = 2 * std::numbers::pi, high = 0x1.921fb5444p2, low = turn - high;
      const SomeAngles turns = (angles * (std::numbers::inv_pi / 2)).rint();
      angles = (angles - turns * high) - turns * low;
    } else {
      angles = angles.unaryExpr(&reduced_angle);
    }
    mu.segment(begin, count) = angles.head(count);
    cosines_and_sines(angles, cosines, sines);
    Eigen::Array<Scalar, angles_at_once, 1> cosine = cosines.cast<Scalar>(), sine = sines.cast<Scalar>();
    Eigen::Array<std::complex<Scalar>, angles_at_once, 1> turns;
    turns.real() = cosine;
    turns.imag() = sine;
    turn_pairs(query, pairs, pairing, begin, count, turns.data(), cosine.data(), sine.data());
    turn_pairs(key, pairs, pairing, begin, count, turns.data(), cosine.data(), sine.data());
  }
}

}  // namespace detail
}  // namespace sympow
