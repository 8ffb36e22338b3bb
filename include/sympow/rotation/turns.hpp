// Vectorized sines and cosines of angles, and rotation of pairs of coordinates.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <complex>
#include <numbers>

#include <sympow/core/choices.hpp>
#include <sympow/core/concepts.hpp>
#include <sympow/simd/blocks.hpp>

namespace SYMPOW_NAMESPACE {

/// An angle in radians reduced to [-π, π].
[[nodiscard]] inline double reduced_angle(double angle) { return std::remainder(angle, 2 * std::numbers::pi); }

namespace detail {

/// Rotates (a, b) by the angle with the given cosine and sine.
template <class Scalar>
void rotate_pair(Scalar& a, Scalar& b, Scalar cosine, Scalar sine) {
  const Scalar first = cosine * a - sine * b;
  b = sine * a + cosine * b;
  a = first;
}

/// e^{iθ_j} of several angles, also as cosines and sines.
template <class Scalar>
struct Phases {
  const std::complex<Scalar>* phase;
  const Scalar *cosine, *sine;
};

/// Rotates `count` pairs in n columns with stride `stride`, from x on. Interleaved pairs are complex numbers;
/// half-split pairs are two vectors, `offset` apart.
template <Pairing pairing, Index n, class Scalar>
[[gnu::always_inline]] inline void rotate_block(Scalar* x, Index stride, Index offset, Index count,
                                                Phases<Scalar> phases) {
  const auto rotate = [=]<Index size>(std::integral_constant<Index, size>, Index j) {
    if constexpr (pairing == Pairing::interleaved) {
      using Packet = Eigen::Array<std::complex<Scalar>, size, 1>;
      const Packet phase = Packet::Map(phases.phase + j);
#pragma GCC unroll 4
      for (Index t = 0; t < n; ++t) {
        auto* const z = reinterpret_cast<std::complex<Scalar>*>(x + t * stride) + j;
        Packet::Map(z) = phase * Packet::Map(z);
      }
    } else {
      using Packet = Eigen::Array<Scalar, size, 1>;
      const Packet c = Packet::Map(phases.cosine + j), s = Packet::Map(phases.sine + j);
#pragma GCC unroll 4
      for (Index t = 0; t < n; ++t) {
        Scalar *const first = x + t * stride + j, *const second = first + offset;
        const Packet a = Packet::Map(first), b = Packet::Map(second);
        Packet::Map(first) = c * a - s * b;
        Packet::Map(second) = s * a + c * b;
      }
    }
  };
  constexpr Index large = std::max<Index>(4, 64 / Index(sizeof(Scalar))), small = large / 4;
  Index j = 0;
  for (; j + large <= count; j += large) rotate(std::integral_constant<Index, large>{}, j);
  for (; j + small <= count; j += small) rotate(std::integral_constant<Index, small>{}, j);
  for (; j < count; ++j)
    for (Index t = 0; t < n; ++t) {
      Scalar* const column = x + t * stride;
      Scalar& a = pairing == Pairing::interleaved ? column[2 * j] : column[j];
      Scalar& b = pairing == Pairing::interleaved ? column[2 * j + 1] : column[j + offset];
      rotate_pair(a, b, phases.cosine[j], phases.sine[j]);
    }
}

/// Rotates `count` of the `pairs` of every column, from pair `begin` on.
template <class Scalar>
void rotate_columns(Scalar* x, Index columns, Index stride, Index pairs, Pairing pairing, Index begin, Index count,
                    Phases<Scalar> phases) {
  Index t = 0;
  if (pairing == Pairing::interleaved) {
    constexpr Index n = 4;  // columns that share one shuffle of the phases
    for (; t + n <= columns; t += n)
      rotate_block<Pairing::interleaved, n>(x + t * stride + 2 * begin, stride, pairs, count, phases);
    for (; t < columns; ++t)
      rotate_block<Pairing::interleaved, 1>(x + t * stride + 2 * begin, stride, pairs, count, phases);
  } else {
    for (; t < columns; ++t) rotate_block<Pairing::half_split, 1>(x + t * stride + begin, stride, pairs, count, phases);
  }
}

/// Angles per block.
inline constexpr Index angle_block = 16;

/// The nearest integer to x, |x| < 2^51, in two additions that vectorize everywhere.
[[gnu::always_inline]] inline double nearest_integer(double x) {
  constexpr double ulp_is_1 = 0x1.8p52;
  return SYMPOW_ROUNDED(SYMPOW_ROUNDED(x + ulp_is_1) - ulp_is_1);
}

/// cos μ and sin μ of `angle_block` angles in [-π, π], accurate to about one rounding, without branches. With m =
/// round(2μ/π), rotates the series of μ - m π/2 by m right angles.
inline void set_cosines_and_sines(const double* __restrict mu, double* __restrict cosines, double* __restrict sines) {
  constexpr double high = 0x1.921fb54442d18p0, low = 0x1.1a62633145c07p-54;  // π/2 = high + low
  constexpr auto inv_fact = [] {
    std::array<double, 17> inverse;
    double factorial = 1;
    for (std::size_t n = 0; n < inverse.size(); factorial *= static_cast<double>(++n)) inverse[n] = 1 / factorial;
    return inverse;
  }();
  for (Index n = 0; n < angle_block; ++n) {
    const double m = nearest_integer(mu[n] * (2 * std::numbers::inv_pi)), m2 = m * m;
    const double r = (mu[n] - m * high) - m * low, x = r * r;
    double sine = inv_fact[13] - x * inv_fact[15], cosine = inv_fact[14] - x * inv_fact[16];
    sine = inv_fact[11] - x * sine, cosine = inv_fact[12] - x * cosine;
    sine = inv_fact[9] - x * sine, cosine = inv_fact[10] - x * cosine;
    sine = inv_fact[7] - x * sine, cosine = inv_fact[8] - x * cosine;
    sine = inv_fact[5] - x * sine, cosine = inv_fact[6] - x * cosine;
    sine = inv_fact[3] - x * sine, cosine = inv_fact[4] - x * cosine;
    sine = r - r * x * sine;
    cosine = 1 - x * (inv_fact[2] - x * cosine);
    const double cosine_of_m = (6 - m2 * (7 - m2)) * (1 / 6.),
                 sine_of_m = m * (4 - m2) * (1 / 3.);  // 0 or ±1
    cosines[n] = cosine * cosine_of_m - sine * sine_of_m;
    sines[n] = sine * cosine_of_m + cosine * sine_of_m;
  }
}

/// μ ← μ + β θ, reduced to [-π, π]; then rotates the query and the key of a token by μ.
template <class Scalar>
void advance_and_rotate(Eigen::Map<Eigen::VectorXd> mu, const double* theta, double beta, Pairing pairing,
                        Scalar* query, Scalar* key) {
  constexpr Index block = angle_block;
  const Index pairs = mu.size();
  for (Index begin = 0; begin < pairs; begin += block) {
    const Index count = std::min(block, pairs - begin);
    alignas(64) double angles[block] = {}, cosines[block], sines[block];
    for (Index n = 0; n < count; ++n) angles[n] = mu[begin + n] + beta * theta[begin + n];
    if (Eigen::Array<double, block, 1>::Map(angles).abs().maxCoeff() <= 1000) {  // the two-part reduction is exact
      constexpr double two_pi = 2 * std::numbers::pi, high = 0x1.921fb5444p2, low = two_pi - high;
      for (Index n = 0; n < block; ++n) {
        const double turns = nearest_integer(angles[n] * (std::numbers::inv_pi / 2));
        angles[n] = (angles[n] - turns * high) - turns * low;
      }
    } else {
      for (Index n = 0; n < count; ++n) angles[n] = reduced_angle(angles[n]);
    }
    std::copy_n(angles, count, mu.data() + begin);
    set_cosines_and_sines(angles, cosines, sines);
    alignas(64) Scalar cosine[block], sine[block];
    alignas(64) std::complex<Scalar> phase[block];
    for (Index n = 0; n < block; ++n)
      cosine[n] = static_cast<Scalar>(cosines[n]), sine[n] = static_cast<Scalar>(sines[n]);
    if (pairing == Pairing::interleaved)
      for (Index n = 0; n < block; ++n) phase[n] = {cosine[n], sine[n]};
    const Phases<Scalar> phases{phase, cosine, sine};
    rotate_columns(query, 1, 0, pairs, pairing, begin, count, phases);
    rotate_columns(key, 1, 0, pairs, pairing, begin, count, phases);
  }
}

}  // namespace detail
}  // namespace SYMPOW_NAMESPACE
