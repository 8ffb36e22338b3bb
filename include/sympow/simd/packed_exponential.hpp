// The inner loop of exponential scores: logits as weights beside a power of two, by packets.
#pragma once

#include <algorithm>
#include <bit>

#include <sympow/simd/packet_of_bits.hpp>

namespace SYMPOW_NAMESPACE::detail {

/// 2^f = 1 + f (c_0 + c_1 f + …) for |f| ≤ 1/2, by interpolation at Chebyshev's points: off by .09 u and .001 u.
template <class Scalar>
inline constexpr Scalar exp2_coefficients[1]{};
template <>
inline constexpr float exp2_coefficients<float>[] {
  6.9314719e-1f, 2.4022651e-1f, 5.5503570e-2f, 9.6180830e-3f, 1.3390864e-3f, 1.5453163e-4f
};
template <>
inline constexpr double exp2_coefficients<double>[] {
  6.93147180559945286e-01, 2.40226506959100722e-01, 5.55041086648216284e-02, 9.61812910762847873e-03,
      1.33335581464064706e-03, 1.54035303933707344e-04, 1.52527338415567729e-05, 1.32154868087055629e-06,
      1.01780577337739415e-07, 7.05489730415549932e-09, 4.45581790833606458e-10, 2.57293243177362318e-11
};

/// Scores b_j e^{x_j} of a row beside a power of two, with log2 b_j = whole_j + rest_j: a logit meets a difference of
/// whole numbers, which is exact, before fractions are added, so that gates round no logit, however small their product
/// is.
///
/// Two passes over scores in the first cache. Floor: 2 and 15 operations a packet, 8 of them multiply-adds, where
/// products of 64 channels and values take 128 of these.
template <class Scalar>
class PackedExponential {
  using Packet = packets::Packet<Scalar>;
  static constexpr int lanes = packets::lanes<Scalar>;
  static constexpr int at_once = std::max(3, 16 / lanes);  // packets: one of them waits for itself
  static constexpr Index block = at_once * lanes;
  static constexpr Scalar log2e = static_cast<Scalar>(1.44269504088896340736L);
  static constexpr Scalar nothing = -std::numeric_limits<Scalar>::infinity();

 public:
  /// What these whole numbers, and the largest exponent of a row, stay below: their differences are exact.
  static constexpr Scalar limit = 0x1p20;

  /// Up to here whole numbers are exact in the type.
  static constexpr double largest_whole = 1 / static_cast<double>(std::numeric_limits<Scalar>::epsilon());

  /// max_j (log2(e) x_j + whole_j) of those that are numbers, rounded; -∞ without any.
  [[gnu::flatten]] static Scalar largest(const Scalar* x, const Scalar* whole, Index n) {
    using namespace packets;
    Packet some[size_of(at_once)];
    unrolled<at_once>([&](auto p) { some[p] = pset1<Packet>(nothing); });
    const auto add = [&](auto p, const Scalar* logits, const Scalar* wholes) __attribute__((always_inline)) {
      some[p] = larger(some[p], pmadd(ploadu<Packet>(logits), pset1<Packet>(log2e), ploadu<Packet>(wholes)));
    };
    Index j = 0;
    for (; j + block <= n; j += block)
      unrolled<at_once>([&](auto p) { add(p, x + j + p * lanes, whole + j + p * lanes); });
    for (; j + lanes <= n; j += lanes) add(One(), x + j, whole + j);
    if (j < n) add(One(), Last(x + j, n - j, nothing).data, Last(whole + j, n - j, 0).data);
    unrolled<at_once>([&](auto p) { some[0] = pmax(some[0], some[p]); });
    return predux_max(some[0]);
  }

  /// x_j ← 2^{log2(e) x_j - shift + whole_j + rest_j + rest} for a whole shift by which no exponent is above those of
  /// the type; returns their sum. Off by 1.2 u, 1.5 u where multiply-adds are not fused, and by roundings of the
  /// exponent; exactly 0 below the normal numbers, and from the least of them up to 3/2 of it. What is not a number
  /// stays none.
  [[gnu::flatten]] static Scalar set(Scalar* x, const Scalar* whole, const Scalar* rests, Index n, Scalar shift,
                                     Scalar rest) {
    using namespace packets;
    const Packet shifts = pset1<Packet>(shift), in_common = pset1<Packet>(rest);
    Packet sums[size_of(at_once)];
    unrolled<at_once>([&](auto p) { sums[p] = pset1<Packet>(Scalar(0)); });
    const auto put = [&](auto count, Scalar* to, const Scalar* wholes, const Scalar* fractions)
                         __attribute__((always_inline)) {
                           Packet some[size_of(count)];
                           unrolled<count>([&](auto p) {
                             const Packet far = psub(ploadu<Packet>(wholes + p * lanes), shifts);
                             const Packet near = pmadd(ploadu<Packet>(to + p * lanes), pset1<Packet>(log2e), far);
                             some[p] = padd(padd(near, ploadu<Packet>(fractions + p * lanes)), in_common);
                           });
                           unrolled<count>([&](auto p) { some[p] = exp2(some[p]); });
                           unrolled<count>([&](auto p) {
                             pstoreu(to + p * lanes, some[p]);
                             sums[p] = padd(sums[p], some[p]);
                           });
                         };
    Index j = 0;
    for (; j + block <= n; j += block) put(std::integral_constant<int, at_once>(), x + j, whole + j, rests + j);
    for (; j + lanes <= n; j += lanes) put(std::integral_constant<int, 1>(), x + j, whole + j, rests + j);
    if (j < n) {
      Last logits(x + j, n - j, nothing);
      put(std::integral_constant<int, 1>(), logits.data, Last(whole + j, n - j, 0).data,
          Last(rests + j, n - j, 0).data);
      std::copy_n(logits.data, n - j, x + j);
    }
    unrolled<at_once - 1>([&](auto p) { sums[0] = padd(sums[0], sums[p + 1]); });
    return predux(sums[0]);
  }

 private:
  using One = std::integral_constant<int, 0>;  // the first packet

  // Less than a packet, and others behind it.
  struct Last {
    alignas(64) Scalar data[size_of(lanes)];
    Last(const Scalar* some, Index n, Scalar other) { std::fill_n(std::copy_n(some, n, data), lanes - n, other); }
  };

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wignored-attributes"  // of a packet as a template argument
  // The bits of every number, moved from the end of the fraction into the exponent.
  static Packet exponents(const Packet& y) {
    using Words = typename PacketOfBits<Scalar>::type;
    return std::bit_cast<Packet>(Words(std::bit_cast<Words>(y) << bits_of_fraction<Scalar>));
  }
#pragma GCC diagnostic pop
  [[gnu::always_inline]] static Packet exp2(Packet x) {
    using namespace packets;
    constexpr auto& c = exp2_coefficients<Scalar>;
    constexpr int last = static_cast<int>(std::size(c)) - 1, bias = std::numeric_limits<Scalar>::max_exponent - 2;
    // Rounds to a whole number n, and has n + bias in its last bits: those of 2^{n-1}, or of 0.
    constexpr Scalar rounding = 3 * static_cast<Scalar>(Bits<Scalar>(1) << (bits_of_fraction<Scalar> - 1)) + bias;
    x = pmax(x, pset1<Packet>(Scalar(-bias)));
    const Packet y = SYMPOW_ROUNDED(padd(x, pset1<Packet>(rounding)));
    const Packet f = psub(x, SYMPOW_ROUNDED(psub(y, pset1<Packet>(rounding))));
    Packet sum = pset1<Packet>(2 * c[last]);
    unrolled<last>([&](auto k)
                       __attribute__((always_inline)) { sum = pmadd(sum, f, pset1<Packet>(2 * c[last - 1 - k])); });
    return pmul(pmadd(sum, f, pset1<Packet>(Scalar(2))), exponents(y));
  }
};

}  // namespace SYMPOW_NAMESPACE::detail
