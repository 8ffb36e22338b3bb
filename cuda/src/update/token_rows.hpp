// Heads and tails of monomials as rows in shared memory, a number for each token of a stage.
#pragma once

#include "../layout/monomials.hpp"
#include "../layout/swizzle.hpp"

namespace sympow::cuda {

/// A monomial in lexicographic order is a head times a tail, with the keys k̂ = 2^-x k and their weights w:
///
///   P      1       2             3                      4
///   head   w k̂_i   w k̂_i         w k̂_i                  (w k̂_i) k̂_j
///   tail   -       k̂_j, j ≥ i    k̂_j k̂_l, l ≥ j ≥ i     k̂_l k̂_m, m ≥ l ≥ j
///
/// Each product is rounded to T. Rows are written by all warps of a block between two barriers.
template <class T, int P, int d, int tokens>
struct TokenRows {
  using Two = block::Pair<T>;
  static constexpr int pairs = monomial_count(2, d);
  static constexpr int head_rows = P == 4 ? pairs : d, tail_rows = P == 1 ? 0 : P == 2 ? d : pairs;
  static constexpr int channel_rows = P == 4 ? 2 * d : P == 3 ? d : 0;  // of which pairs are made
  static constexpr int entries = (head_rows + tail_rows + channel_rows) * tokens;

  block::Shared<T> memory;  // heads, then tails, then the channels: k̂, and w k̂ where heads are pairs

  /// The row of the head or tail of monomial m; those beyond the last are like it.
  struct Places {
    Lanes<int> head, tail;
  };
  SYMPOW_DEVICE static Places places(Lanes<int> m) {
    const auto at = Monomial<P>::template at<d>(d, m);
    const auto& i = at.channel;
    if constexpr (P == 1) return {i[0], i[0]};
    if constexpr (P == 2) return {i[0], i[1] + head_rows};
    if constexpr (P == 3) return {i[0], pair_place(d, i[1], i[2]) + head_rows};
    if constexpr (P == 4) return {pair_place(d, i[0], i[1]), pair_place(d, i[2], i[3]) + head_rows};
  }

  /// Where the 16 bytes of an octet of tokens in a row begin.
  template <class Row, class Octet>
  SYMPOW_DEVICE static auto place(Row row, Octet octet) {
    return octet_place<tokens>(row, octet);
  }

  /// Where the four numbers of lane 4 r + q lie for the tokens 2 q, 2 q + 1, 2 q + 8, 2 q + 9 of a slab, of q = 0: heads of
  /// P 2 are read by all rows of lanes alike, so they are stored as lanes need them, 32 bytes a slab.
  template <class Row>
  SYMPOW_DEVICE static auto broadcast_place(Row row, int slab) {
    return row * tokens + ((row & 3) ^ slab) * 16;
  }

  /// Turns keys, `tokens` rows of d channels from row `first_key` on in octet_place<d>, into rows: warp w of so many.
  template <int warps>
  SYMPOW_DEVICE void turn(block::Shared<T> keys, block::Shared<float> inverse, block::Shared<float> weight,
                          int first_key, int w) const {
    using namespace block;
    constexpr int plain = P >= 3 ? head_rows + tail_rows : head_rows, weighted = P == 4 ? plain + d : 0;
    constexpr int units = d / 8 * (tokens / 32);
    constexpr std::size_t most = units > warps ? units / warps : 1;
    Lanes<Two> key[most][4];
    const auto each_unit = [&](auto f) {
      SYMPOW_UNROLL
      for (std::size_t n = 0; n < most; ++n) {
        const int unit = w + static_cast<int>(n) * warps;
        if (unit < units) f(key[n], unit % (d / 8), unit / (d / 8) * 32);
      }
    };
    each_unit([&](auto& octets, int octet, int from) {
      ldmatrix<true>(octets, keys, octet_place<d>(lane() + (first_key + from), octet));
    });
    each_unit([&](const auto& octets, int octet, int from) {
      Lanes<float> shrink[4][2], weigh[4][2];
      SYMPOW_UNROLL
      for (int n = 0; n < 4; ++n) {
        load(shrink[n], inverse, lane() % 4 * 2 + (first_key + from + 8 * n));
        load(weigh[n], weight, lane() % 4 * 2 + (first_key + from + 8 * n));
      }
      SYMPOW_UNROLL
      for (int n = 0; n < 4; ++n) {
        const Lanes<int> within = place((lane() >> 2) + octet * 8, from / 8 + n) + lane() % 4 * 2;
        const Lanes<float> one = lower(octets[n]) * shrink[n][0], other = upper(octets[n]) * shrink[n][1];
        if constexpr (P > 1) put(within + plain * tokens, pack<T>(one, other));
        const Lanes<int> at_head =
            P == 2 ? broadcast_place((lane() >> 2) + octet * 8, from / 16 + n / 2) + lane() % 4 * 4 + n % 2 * 2
                   : within + weighted * tokens;
        put(at_head, pack<T>(one * weigh[n][0], other * weigh[n][1]));
      }
    });
  }

  /// The rows of pairs, two tokens a lane.
  SYMPOW_DEVICE void pair(int w, int warps) const {
    using namespace block;
    constexpr int plain = head_rows + tail_rows;
    const auto at = [](int row) { return place(row, lane() / 4) + lane() % 4 * 2; };
    int pair = 0;
    for (int i = 0; i < d; ++i)
      for (int j = i; j < d; ++j, ++pair) {
        if (pair % warps != w) continue;
        const Lanes<Two> second = get(at(plain + j));
        put(at(head_rows + pair), multiply(get(at(plain + i)), second), lane() * 2 < tokens);
        if constexpr (P == 4) put(at(pair), multiply(get(at(plain + d + i)), second), lane() * 2 < tokens);
      }
  }

 private:
  SYMPOW_DEVICE Lanes<Two> get(Lanes<int> entry) const {
    Lanes<Two> two[1] = {Two{}};
    load(two, memory.template as<Two>(), entry / 2, block::lane() * 2 < tokens);
    return two[0];
  }
  SYMPOW_DEVICE void put(Lanes<int> entry, Lanes<Two> two, Lanes<bool> active = true) const {
    const Lanes<Two> one[1] = {two};
    store(memory.template as<Two>(), entry / 2, one, active);
  }
};

}  // namespace sympow::cuda
