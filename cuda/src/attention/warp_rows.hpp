// The rows of a warp: their queries, and the weights of a block of keys in them.
#pragma once

#include "../layout/tiles.hpp"
#include "../layout/turns.hpp"
#include "row_levels.hpp"

namespace sympow::cuda {

/// x^P of a small P.
template <int P>
SYMPOW_DEVICE Lanes<float> power(Lanes<float> x) {
  if constexpr (P == 0) return Lanes<float>(1.f);
  if constexpr (P == 1) return x;
  if constexpr (P == 2) return x * x;
  if constexpr (P == 3) return x * x * x;
  if constexpr (P == 4) return x * x * (x * x);
}

/// ‖x‖^P from ‖x‖².
template <int P>
SYMPOW_DEVICE Lanes<float> norm_to(Lanes<float> square) {
  if constexpr (P % 2 == 0) return power<P / 2>(square);
  return power<P / 2>(square) * block::sqrt(square);
}

/// Of the rows 8 g + lane / 4.
template <int groups>
struct QueryNorms {
  static constexpr std::size_t count = groups;
  Lanes<int> exponent[count];  ///< q = 2^exponent q̂
  Lanes<float> square[count];  ///< ‖q̂‖²
};

/// Where the octets of rows of d channels are: in octet_place<d>.
template <int d>
struct OctetPlaces {
  template <class Row, class Octet>
  SYMPOW_DEVICE static auto at(Row row, Octet octet) {
    return octet_place<d>(row, octet);
  }
};

/// q̂ in place of q: 8 `groups` rows from `first` on. The largest entry of a row comes into [½, 1);
/// rows of zeros stay, and rows with a number that is not finite become NaN. Adds to norms.exponent. Only for the
/// warp's own lanes, who are in step after it.
template <int d, class Places = OctetPlaces<d>, int groups, class T>
SYMPOW_DEVICE void normalise_queries(QueryNorms<groups>& norms, block::Shared<T> queries, int first) {
  using namespace block;
  constexpr std::size_t parts = d / 32 > 0 ? d / 32 : 1;  // of a row, four lanes with eight channels each
  const Lanes<bool> active = lane() % 4 * 8 < d;
  SYMPOW_UNROLL
  for (int g = 0; g < groups; ++g) {
    Lanes<float> entries[parts][8];
    const auto place = [&](std::size_t n) {
      return Places::at(lane() / 4 + (first + 8 * g), lane() % 4 + 4 * static_cast<int>(n)) / 2;
    };
    Lanes<float> largest = 0.f;
    SYMPOW_UNROLL
    for (std::size_t n = 0; n < parts; ++n) {
      Lanes<Pair<T>> pairs[4];
      SYMPOW_UNROLL
      for (int i = 0; i < 4; ++i) pairs[i] = Pair<T>{};
      load(pairs, queries.template as<Pair<T>>(), place(n), active);
      SYMPOW_UNROLL
      for (int i = 0; i < 4; ++i) {
        entries[n][2 * i] = lower(pairs[i]);
        entries[n][2 * i + 1] = upper(pairs[i]);
        largest = larger(largest, larger(absolute(entries[n][2 * i]), absolute(entries[n][2 * i + 1])));
      }
    }
    SYMPOW_UNROLL
    for (int mask = 1; mask < 4; mask *= 2) largest = larger(largest, shuffle_xor(largest, mask));
    // 2^exponent > largest ≥ 2^(exponent - 1), exponent ≤ 126 so that 2^-exponent is a normal number
    const Lanes<int> bits = convert<int>(bit_cast<std::uint32_t>(largest) >> 23) - 126;
    const Lanes<int> exponent = where(largest == 0.f, 0, smaller(larger(bits, Lanes<int>(-126)), Lanes<int>(126)));
    const Lanes<float> shrink = two_to(-exponent);
    Lanes<float> square = 0.f;
    SYMPOW_UNROLL
    for (std::size_t n = 0; n < parts; ++n) {
      Lanes<Pair<T>> pairs[4];
      SYMPOW_UNROLL
      for (int i = 0; i < 4; ++i) {
        const Lanes<float> one = entries[n][2 * i] * shrink, other = entries[n][2 * i + 1] * shrink;
        square += one * one + other * other;
        pairs[i] = pack<T>(one, other);
      }
      store(queries.template as<Pair<T>>(), place(n), pairs, active);
    }
    square += shuffle_xor(square, 1);
    norms.square[g] = square + shuffle_xor(square, 2);
    norms.exponent[g] += exponent;
  }
  warp_barrier();
}

/// Turns such rows in place, those of tokens from `begin` on, beyond `last` like it. Each entry
/// is rounded to T.
template <int d, int groups, class Places = OctetPlaces<d>, class T>
SYMPOW_DEVICE void turn_queries(block::Shared<T> queries, int first, const Rotary& rotary, int b, int key_head,
                                std::int64_t begin, int last) {
  using namespace block;
  constexpr int parts = d / 32 > 0 ? d / 32 : 1, distance = d > 16 ? 2 : 1;  // of lanes with octets half a row apart
  SYMPOW_ROLL
  for (int n = 0; n < groups * parts; ++n) {
    const Lanes<int> row = lane() / 4 + 8 * (n / parts),
                     octet = lane() % 2 + lane() % 4 / 2 * (d / 16) + 2 * (n % parts);
    const Lanes<bool> active = lane() % 4 * 8 < d;
    const Lanes<int> place = Places::at(row + first, octet) / 2;
    Lanes<Pair<T>> pairs[4];
    SYMPOW_UNROLL
    for (int i = 0; i < 4; ++i) pairs[i] = Pair<T>{};
    load(pairs, queries.template as<Pair<T>>(), place, active);
    rotary.turn(pairs, d, octet, distance, b, smaller(row, Lanes<int>(last)) + begin, key_head, active);
    store(queries.template as<Pair<T>>(), place, pairs, active);
  }
  warp_barrier();
}

/// q̂ of the warp's queries, turned where there is rotary: made before they turn, too, so that nothing overflows. The
/// block has those of a chunk of `length` tokens, at token `begin`, from row `top` on.
template <int d, int groups, class T>
SYMPOW_DEVICE QueryNorms<groups> take_queries(block::Shared<T> queries, int top, const Rotary& rotary, int b,
                                              int key_head, std::int64_t begin, int length) {
  QueryNorms<groups> norms;
  SYMPOW_UNROLL
  for (auto& exponent : norms.exponent) exponent = 0;
  SYMPOW_ROLL
  for (int turns = rotary.rates.data ? 1 : 0; turns >= 0; --turns) {
    const int first = block::warp() * 8 * groups;  // asked anew: one register less than a row kept
    normalise_queries<d>(norms, queries, first);
    if (turns > 0)
      turn_queries<d, groups>(queries, first, rotary, b, key_head, begin + top + first, length - 1 - top - first);
  }
  return norms;
}

/// The first two octets of columns come behind the others.
template <std::size_t octets>
SYMPOW_DEVICE void go_round(Lanes<float> (&tile)[octets][4]) {
  SYMPOW_UNROLL
  for (std::size_t h = 0; h < 2; ++h) SYMPOW_UNROLL
  for (int r = 0; r < 4; ++r) {
    const Lanes<float> first = tile[h][r];
    SYMPOW_UNROLL
    for (std::size_t o = h; o + 2 < octets; o += 2) tile[o][r] = tile[o + 2][r];
    tile[octets - 2 + h][r] = first;
  }
}

/// The queries of a warp as left factors: up to 64 channels of 16 bits stay in registers, if there is room.
template <class T, int d, int tiles, block::Products products = block::Products::exact, bool keeps = true>
struct QueryTiles {
  static constexpr std::size_t count = tiles, kept = sizeof(T) == 2 && d <= 64 && keeps ? d / 16 : 0;

  block::Shared<T> queries;
  int first;
  Lanes<block::Pair<T>> left[count][kept > 0 ? kept : 1][4];

  SYMPOW_DEVICE QueryTiles(block::Shared<T> memory, int first_row) : queries(memory), first(first_row) {
    SYMPOW_UNROLL
    for (int t = 0; t < tiles; ++t) SYMPOW_UNROLL
    for (int step = 0; step < static_cast<int>(kept); ++step) load(left[t][step], t, step);
  }
  /// Channels 16 step … 16 step + 15 of the rows of a tile.
  SYMPOW_DEVICE void take(Lanes<block::Pair<T>> (&tile)[4], int t, int step) const {
    if constexpr (kept > 0) {
      SYMPOW_UNROLL
      for (int r = 0; r < 4; ++r) tile[r] = left[t][step][r];
    } else {
      load(tile, t, step);
    }
  }
  /// Scores q̂_i·k_j of 8 `octets` keys, in rows from `first_key` on.
  template <std::size_t octets>
  SYMPOW_DEVICE void scores(Lanes<float> (&score)[count][octets][4], block::Shared<T> keys, int first_key) const {
    using namespace block;
    SYMPOW_UNROLL
    for (int t = 0; t < tiles; ++t) SYMPOW_UNROLL
    for (std::size_t n = 0; n < octets; ++n) SYMPOW_UNROLL
    for (int r = 0; r < 4; ++r) score[t][n][r] = 0.f;
    add_scores(score, keys, first_key);
  }
  /// score += q̂_i·k_j.
  template <std::size_t octets>
  SYMPOW_DEVICE void add_scores(Lanes<float> (&score)[count][octets][4], block::Shared<T> keys, int first_key) const {
    using namespace block;
    // Of floats 16 keys at a time, as registers hold them: always the first of the scores, which go round.
    constexpr int at_once = sizeof(T) == 2 ? static_cast<int>(octets) / 2 : 1;
    SYMPOW_UNROLL_BY(kept > 0 ? d / 16 : 1)
    for (int step = 0; step < d / 16; ++step) {
      SYMPOW_ROLL
      for (int from = 0; from < static_cast<int>(octets) / 2; from += at_once) {
        Lanes<Pair<T>> right[std::size_t{at_once}][4];
        SYMPOW_UNROLL
        for (int n = 0; n < at_once; ++n)
          ldmatrix<false>(right[n], keys,
                          octet_place<d>((lane() >> 4) * 8 + lane() % 8 + (first_key + 16 * (from + n)),
                                         (lane() >> 3) % 2 + 2 * step));
        SYMPOW_UNROLL
        for (int t = 0; t < tiles; ++t) {
          if constexpr (kept > 0) {
            multiply_right<products>(score[t], left[t][step], right);
          } else {
            Lanes<Pair<T>> tile[4];
            load(tile, t, step);
            multiply_right<products>(score[t], tile, right);
          }
          if constexpr (sizeof(T) > 2) go_round(score[t]);
        }
      }
    }
  }

 private:
  SYMPOW_DEVICE void load(Lanes<block::Pair<T>> (&tile)[4], int t, int step) const {
    using namespace block;
    ldmatrix<false>(tile, queries, octet_place<d>(lane() % 16 + (first + 16 * t), lane() / 16 + 2 * step));
  }
};

/// f(s, g) of every entry s of sums or scores, in rows 8 g + lane / 4.
template <std::size_t tiles, std::size_t n, class F>
SYMPOW_DEVICE void each(Lanes<float> (&sum)[tiles][n][4], const F& f) {
  SYMPOW_UNROLL
  for (std::size_t t = 0; t < tiles; ++t) SYMPOW_UNROLL
  for (std::size_t i = 0; i < n; ++i) SYMPOW_UNROLL
  for (int r = 0; r < 4; ++r) f(sum[t][i][r], static_cast<int>(2 * t) + r / 2);
}

/// Scores of 16 n keys as left factors, rounded to T; 0 where they are hidden.
template <class T, std::size_t n, std::size_t tiles>
SYMPOW_DEVICE void left_factors(Lanes<block::Pair<T>> (&left)[n][tiles][4],
                                const Lanes<float> (&score)[tiles][2 * n][4], bool is_hidden) {
  using namespace block;
  SYMPOW_UNROLL
  for (std::size_t step = 0; step < n; ++step) SYMPOW_UNROLL
  for (std::size_t t = 0; t < tiles; ++t) SYMPOW_UNROLL
  for (std::size_t r = 0; r < 4; ++r) {
    const auto& two = score[t][2 * step + r / 2];
    left[step][t][r] = is_hidden ? Lanes<Pair<T>>(Pair<T>{}) : pack<T>(two[r % 2 * 2], two[r % 2 * 2 + 1]);
  }
}

/// Scores of keys that all rows see, times `scale` of each key (a lane's), to the power P.
template <int P, std::size_t tiles, std::size_t octets>
SYMPOW_DEVICE void weigh_columns(Lanes<float> (&score)[tiles][octets][4], Lanes<float> scale) {
  using namespace block;
  SYMPOW_UNROLL
  for (int n = 0; n < static_cast<int>(octets); ++n) SYMPOW_UNROLL
  for (int h = 0; h < 2; ++h) {
    const Lanes<float> column = shuffle(scale, lane() % 4 * 2 + (8 * n + h));
    SYMPOW_UNROLL
    for (std::size_t t = 0; t < tiles; ++t) {
      score[t][n][h] = power<P>(score[t][n][h] * column);
      score[t][n][h + 2] = power<P>(score[t][n][h + 2] * column);
    }
  }
}

/// Scores of the first `count` keys become 0.
template <std::size_t tiles, std::size_t octets>
SYMPOW_DEVICE void hide_columns(Lanes<float> (&score)[tiles][octets][4], int count) {
  using namespace block;
  SYMPOW_UNROLL
  for (int n = 0; n < static_cast<int>(octets); ++n) SYMPOW_UNROLL
  for (int h = 0; h < 2; ++h) {
    const Lanes<bool> is_hidden = lane() % 4 * 2 + (8 * n + h) < count;
    SYMPOW_UNROLL
    for (std::size_t t = 0; t < tiles; ++t) {
      score[t][n][h] = where(is_hidden, Lanes<float>(0.f), score[t][n][h]);
      score[t][n][h + 2] = where(is_hidden, Lanes<float>(0.f), score[t][n][h + 2]);
    }
  }
}

/// Scores of the warp's own keys from `first` on, of each one's exponent u relative to the anchor and 2^-x (a lane's):
/// pair by pair.
template <int P, int groups, std::size_t tiles, std::size_t octets>
SYMPOW_DEVICE void weigh_pairs(Lanes<float> (&score)[tiles][octets][4], const RowLevels<groups>& levels, int first,
                               const TwoFloats& key, Lanes<float> inverse) {
  using namespace block;
  SYMPOW_UNROLL
  for (int n = 0; n < static_cast<int>(octets); ++n) SYMPOW_UNROLL
  for (int h = 0; h < 2; ++h) {
    const Lanes<int> j = lane() % 4 * 2 + (8 * n + h);
    const Lanes<float> high = shuffle(key.high, j), low = shuffle(key.low, j), shrink = shuffle(inverse, j);
    SYMPOW_UNROLL
    for (int g = 0; g < groups; ++g) {
      Lanes<float>& s = score[g / 2][n][g % 2 * 2 + h];
      const Lanes<bool> is_seen = j <= lane() / 4 + 8 * g && j + first >= levels.seen[g];
      const Lanes<float> weight = exp2((high - levels.above[g].high) + (low - levels.above[g].low));
      s = where(is_seen, power<P>(s * shrink) * weight, 0.f);
    }
  }
}

}  // namespace sympow::cuda
