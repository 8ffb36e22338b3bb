// Sines and cosines of many angles at once, and pairs of coordinates that turn by them.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <complex>
#include <numbers>

#include <sympow/core/blocks.hpp>
#include <sympow/core/concepts.hpp>

namespace SYMPOW_NAMESPACE {

/// Which coordinates form pair j of d/2 (0-based): 2j and 2j + 1 (the papers, GPT-J), or j and j + d/2 (GPT-NeoX,
/// LLaMA).
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

/// Turns `count` pairs of n columns, `stride` apart, whose entries lie side by side, the first at x: pairs of
/// neighbours as complex numbers, those of two halves, which begin `apart` from each other, as two vectors.
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

/// The nearest whole number of |x| < 2^51, in two additions that every processor has for packets.
[[gnu::always_inline]] inline double nearest_whole(double x) {
  constexpr double ulp_is_1 = 0x1.8p52;
  return SYMPOW_ROUNDED(SYMPOW_ROUNDED(x + ulp_is_1) - ulp_is_1);
}

/// cos μ and sin μ of `angles_at_once` angles in [-π, π] to about a rounding, without a branch: with m the nearest
/// number of right angles the series of μ - m π/2 are turned by m of them.
inline void cosines_and_sines(const double* __restrict mu, double* __restrict cosines, double* __restrict sines) {
  constexpr double high = 0x1.921fb54442d18p0, low = 0x1.1a62633145c07p-54;  // π/2 as two numbers
  constexpr auto over = [] {                                                 // the inverse factorials
    std::array<double, 17> inverse;
    double factorial = 1;
    for (std::size_t n = 0; n < inverse.size(); factorial *= static_cast<double>(++n)) inverse[n] = 1 / factorial;
    return inverse;
  }();
  for (Index n = 0; n < angles_at_once; ++n) {
    const double m = nearest_whole(mu[n] * (2 * std::numbers::inv_pi)), turns = m * m;
    const double r = (mu[n] - m * high) - m * low, x = r * r;
    double sine = over[13] - x * over[15], cosine = over[14] - x * over[16];
    sine = over[11] - x * sine, cosine = over[12] - x * cosine;
    sine = over[9] - x * sine, cosine = over[10] - x * cosine;
    sine = over[7] - x * sine, cosine = over[8] - x * cosine;
    sine = over[5] - x * sine, cosine = over[6] - x * cosine;
    sine = over[3] - x * sine, cosine = over[4] - x * cosine;
    sine = r - r * x * sine;
    cosine = 1 - x * (over[2] - x * cosine);
    const double cosine_of_turns = (6 - turns * (7 - turns)) * (1 / 6.),
                 sine_of_turns = m * (4 - turns) * (1 / 3.);  // 0 or ±1
    cosines[n] = cosine * cosine_of_turns - sine * sine_of_turns;
    sines[n] = sine * cosine_of_turns + cosine * sine_of_turns;
  }
}

/// Turns queries and keys of one token by the same angles, which go on from μ to μ + β θ, reduced to [-π, π].
template <class Scalar>
void turn_on(Eigen::Map<Eigen::VectorXd> mu, const double* theta, double beta, Pairing pairing, Scalar* query,
             Scalar* key) {
  constexpr Index all = angles_at_once;
  const Index pairs = mu.size();
  for_blocks<all>(pairs, [&](Index begin, auto count) {
    alignas(64) double angles[all] = {}, cosines[all], sines[all];
    for (Index n = 0; n < count; ++n) angles[n] = mu[begin + n] + beta * theta[begin + n];
    if (Eigen::Array<double, all, 1>::Map(angles).abs().maxCoeff() <= 1000) {  // few turns: two parts are exact
      constexpr double turn = 2 * std::numbers::pi, high = 0x1.921fb5444p2, low = turn - high;
      for (Index n = 0; n < all; ++n) {
        const double turns = nearest_whole(angles[n] * (std::numbers::inv_pi / 2));
        angles[n] = (angles[n] - turns * high) - turns * low;
      }
    } else {
      for (Index n = 0; n < count; ++n) angles[n] = reduced_angle(angles[n]);
    }
    std::copy_n(angles, count, mu.data() + begin);
    cosines_and_sines(angles, cosines, sines);
    alignas(64) Scalar cosine[all], sine[all];
    alignas(64) std::complex<Scalar> turns[all];
    for (Index n = 0; n < all; ++n)
      cosine[n] = static_cast<Scalar>(cosines[n]), sine[n] = static_cast<Scalar>(sines[n]);
    if (pairing == Pairing::interleaved)
      for (Index n = 0; n < all; ++n) turns[n] = {cosine[n], sine[n]};
    const Turns<Scalar> by{turns, cosine, sine};
    turn_columns(query, 1, 0, pairs, pairing, begin, count, by);
    turn_columns(key, 1, 0, pairs, pairing, begin, count, by);
  });
}

}  // namespace detail
}  // namespace SYMPOW_NAMESPACE
