// Sines and cosines of many angles at once, and pairs of coordinates that turn by them.
#pragma once

#include <algorithm>
#include <array>
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

/// Turns the point (a, b) by the angle with the given cosine and sine.
template <class Scalar>
void turn_pair(Scalar& a, Scalar& b, Scalar cosine, Scalar sine) {
  const Scalar first = cosine * a - sine * b;
  b = sine * a + cosine * b;
  a = first;
}

/// e^{iθ_j} of some angles, and their parts.
template <class Scalar>
struct Turns {
  const std::complex<Scalar>* turns;
  const Scalar *cosine, *sine;
};

/// Turns `count` pairs of n columns, `stride` apart, whose entries lie side by side, the first at x: pairs of neighbours as complex numbers,
/// those of two halves, which begin `apart` from each other, as two vectors.
template <Pairing pairing, Index n, class Scalar>
[[gnu::always_inline]] inline void turn_some(Scalar* x, Index stride, Index apart, Index count, Turns<Scalar> by) {
  const auto turn = [=]<Index together>(std::integral_constant<Index, together>, Index j) {
    if constexpr (pairing == Pairing::interleaved) {
      using Some = Eigen::Array<std::complex<Scalar>, together, 1>;
      const Some turns = Some::Map(by.turns + j);
#pragma GCC unroll 4
      for (Index t = 0; t < n; ++t) {
        auto* const z = reinterpret_cast<std::complex<Scalar>*>(x + t * stride) + j;
        Some::Map(z) = turns * Some::Map(z);
      }
    } else {
      using Some = Eigen::Array<Scalar, together, 1>;
      const Some c = Some::Map(by.cosine + j), s = Some::Map(by.sine + j);
#pragma GCC unroll 4
      for (Index t = 0; t < n; ++t) {
        Scalar *const first = x + t * stride + j, *const second = first + apart;
        const Some a = Some::Map(first), b = Some::Map(second);
        Some::Map(first) = c * a - s * b;
        Some::Map(second) = s * a + c * b;
      }
    }
  };
  constexpr Index many = std::max<Index>(4, 64 / Index(sizeof(Scalar))), some = many / 4;
  Index j = 0;
  for (; j + many <= count; j += many) turn(std::integral_constant<Index, many>{}, j);
  for (; j + some <= count; j += some) turn(std::integral_constant<Index, some>{}, j);
  for (; j < count; ++j)
    for (Index t = 0; t < n; ++t) {
      Scalar* const column = x + t * stride;
      Scalar& a = pairing == Pairing::interleaved ? column[2 * j] : column[j];
      Scalar& b = pairing == Pairing::interleaved ? column[2 * j + 1] : column[j + apart];
      turn_pair(a, b, by.cosine[j], by.sine[j]);
    }
}

/// Turns `count` of the `pairs` of every column, from pair `begin` on; the columns are `stride` apart.
template <class Scalar>
void turn_columns(Scalar* x, Index columns, Index stride, Index pairs, Pairing pairing, Index begin, Index count,
                  Turns<Scalar> by) {
  Index t = 0;
  if (pairing == Pairing::interleaved) {
    constexpr Index n = 4;  // for which the turns are shuffled once
    for (; t + n <= columns; t += n)
      turn_some<Pairing::interleaved, n>(x + t * stride + 2 * begin, stride, pairs, count, by);
    for (; t < columns; ++t) turn_some<Pairing::interleaved, 1>(x + t * stride + 2 * begin, stride, pairs, count, by);
  } else {
    for (; t < columns; ++t) turn_some<Pairing::half_split, 1>(x + t * stride + begin, stride, pairs, count, by);
  }
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
  constexpr auto over = [] {  // the inverse factorials
    std::array<double, 17> inverse;
    double factorial = 1;
    for (std::size_t n = 0; n < inverse.size(); factorial *= static_cast<double>(++n)) inverse[n] = 1 / factorial;
    return inverse;
  }();
  SomeAngles sine = SomeAngles::Constant(over[15]), cosine = SomeAngles::Constant(over[16]);
#pragma GCC unroll 6
  for (std::size_t n = 13; n > 1; n -= 2) {
    sine = over[n] - x * sine;
    cosine = over[n + 1] - x * cosine;
  }
  sine = r - r * x * sine;
  cosine = 1 - x * (over[2] - x * cosine);
  const SomeAngles cosine_of_turns = (6 - turns * (7 - turns)) * (1 / 6.),
                   sine_of_turns = m * (4 - turns) * (1 / 3.);  // 0 or ±1
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
    if (angles.square().sum() <= 1e6) {  // few turns, of which the two parts are exact
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
    if (pairing == Pairing::interleaved) {
      turns.real() = cosine;
      turns.imag() = sine;
    }
    const Turns<Scalar> by{turns.data(), cosine.data(), sine.data()};
    turn_columns(query, 1, 0, pairs, pairing, begin, count, by);
    turn_columns(key, 1, 0, pairs, pairing, begin, count, by);
  }
}

}  // namespace detail
}  // namespace sympow
