// Rotary: channels of queries and keys turn in pairs, by the angle of their token.
//
// An angle is a number of turns in double, reduced to half a turn before it becomes a float: so it is as exact for the
// last of a million tokens as for the first.
#pragma once

#include "sequences.hpp"

namespace sympow::cuda {

/// x + path · rate / 2π, reduced to [-½, ½]: turns, of a rate in radians.
SYMPOW_DEVICE Lanes<double> turns_after(Lanes<double> x, Lanes<double> path, Lanes<double> rate) {
  constexpr double turns_of_radian = 0.15915494309189533577;
  const Lanes<double> all = x + path * (rate * turns_of_radian);
  const Lanes<double> rest = all - block::floor(all);
  return block::where(rest > .5, rest - 1., rest);
}

/// Of an angle.
struct Turn {
  Lanes<float> cosine, sine;
};

/// cos 2πx and sin 2πx, |x| ≤ ½, each within 2.5 · 2^-24: the series of what is left of the nearest quarter of a turn,
/// at most an eighth. NaN where x is.
SYMPOW_DEVICE Turn turn_of(Lanes<double> x) {
  using namespace block;
  const Lanes<double> quarters = x * 4., nearest = floor(quarters + .5);
  const Lanes<float> q = convert<float>(nearest), r = convert<float>(quarters - nearest), z = r * r;
  // (π/2)^n / n!. In units of 2^-24: .4 for the rounding of r; 1.9 for those of the sine, 1.5 of the cosine; what is
  // left out of the sine is .03, of the cosine .4.
  const Lanes<float> sine =
      r * (1.5707963268f + z * (-.64596409751f + z * (.079692626246f + z * (-.0046817541353f + z * .00016044118479f))));
  const Lanes<float> cosine =
      1.f + z * (-1.2337005501f + z * (.25366950790f + z * (-.020863480763f + z * .00091926027484f)));
  const Lanes<bool> odd = q * q == 1.f;
  const Lanes<float> c = where(odd, sine, cosine), s = where(odd, cosine, sine);
  return {where(q > .5f || q < -1.5f, -c, c), where(q < -.5f || q > 1.5f, -s, s)};
}

/// What tokens turn by: pair j of token t by 2π (begin_j + path_t rate_j / 2π), of its sequence and key head.
struct Rotary {
  Global<const double> rates;  ///< d/2 of them, in radians; null: nothing turns
  Rows<const double> paths;    ///< [B, T, Hk]: sums of β up to each token, itself included
  Global<const double> begin;  ///< [B, Hk, d/2]: the angles before the first token, in turns
  int key_heads;
  bool halves;  ///< a pair is the channels j and j + d/2, else 2 j and 2 j + 1

  /// A part of a row of d channels, N to a lane, turns: those of `part`, from N · part on, where active. All lanes call
  /// it. Of halves, the lane whose number differs by the bit `distance` has the part half a row away; each of the two
  /// makes half of their turns. An entry is off by 6 · 2^-24 times the norm of its pair.
  template <std::size_t N, class Token>
  SYMPOW_DEVICE void turn(Lanes<float> (&x)[N], int d, Lanes<int> part, int distance, int b, Token token, int head,
                          Lanes<bool> active) const {
    using namespace block;
    constexpr int all = N, made = all / 2;
    constexpr std::size_t together = made < 2 ? 1 : 2, loads = made / together;
    const int half = d / (2 * all);
    const Lanes<bool> second = part >= half;  // of halves
    const Lanes<int> first = halves ? where(second, (part - half) * all + made, part * all) : part * made;
    const std::int64_t row = (std::int64_t{b} * key_heads + head) * (d / 2);
    Lanes<double> path[1] = {0.}, rate[loads][together], before[loads][together];
    load(path, paths.data, paths.at(b, token, head), active);
    Turn own[loads][together];
    SYMPOW_UNROLL
    for (std::size_t n = 0; n < loads; ++n) {
      SYMPOW_UNROLL
      for (std::size_t i = 0; i < together; ++i) rate[n][i] = before[n][i] = 0.;
      const Lanes<std::int64_t> j = first + static_cast<int>(n * together) + std::int64_t{0};
      load(rate[n], rates, j, active);
      load(before[n], begin, j + row, active);
      SYMPOW_UNROLL
      for (std::size_t i = 0; i < together; ++i) own[n][i] = turn_of(turns_after(before[n][i], path[0], rate[n][i]));
    }
    SYMPOW_UNROLL
    for (int n = 0; n < made; ++n) {
      const Turn& by = own[static_cast<std::size_t>(n) / together][static_cast<std::size_t>(n) % together];
      if (halves) {
        const Turn other{shuffle_xor(by.cosine, distance), shuffle_xor(by.sine, distance)};
        const Lanes<float> a = shuffle_xor(x[n], distance), c = shuffle_xor(x[n + made], distance);
        turn_half(x[n], a, second, {where(second, other.cosine, by.cosine), where(second, other.sine, by.sine)});
        turn_half(x[n + made], c, second, {where(second, by.cosine, other.cosine), where(second, by.sine, other.sine)});
      } else {
        const Lanes<float> a = x[2 * n], c = x[2 * n + 1];
        x[2 * n] = by.cosine * a - by.sine * c;
        x[2 * n + 1] = by.sine * a + by.cosine * c;
      }
    }
  }

  /// Numbers of T, rounded once.
  template <class T, std::size_t N, class Token>
  SYMPOW_DEVICE void turn(Lanes<block::Pair<T>> (&pairs)[N], int d, Lanes<int> part, int distance, int b, Token token,
                          int head, Lanes<bool> active) const {
    Lanes<float> x[2 * N];
    SYMPOW_UNROLL
    for (std::size_t n = 0; n < N; ++n) {
      x[2 * n] = lower(pairs[n]);
      x[2 * n + 1] = upper(pairs[n]);
    }
    turn(x, d, part, distance, b, token, head, active);
    SYMPOW_UNROLL
    for (std::size_t n = 0; n < N; ++n) pairs[n] = block::pack<T>(x[2 * n], x[2 * n + 1]);
  }

 private:
  /// The first or second of a pair, `other` being the other.
  SYMPOW_DEVICE static void turn_half(Lanes<float>& x, Lanes<float> other, Lanes<bool> second, const Turn& by) {
    x = by.cosine * x + block::where(second, by.sine, -by.sine) * other;
  }
};

}  // namespace sympow::cuda
