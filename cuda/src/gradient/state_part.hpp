// What 16 rows of a warp have of a state: the derivative of φ times the state, and φ itself times it.
#pragma once

#include "../attention/query_features.hpp"
#include "../layout/chunks.hpp"
#include "../layout/tiles.hpp"
#include "pair_tiles.hpp"
#include "unit_rows.hpp"

namespace sympow::cuda {

/// States between chunks as gradients read them: of the keys before a chunk, or the adjoints of those after it.
template <class T>
struct StatesOfChunks {
  Prefixes<T> prefixes = {};  ///< `sums`, `rest` and `whole`; null: there are none
  ChunkArrays chunks = {};    ///< `enter` and `shift`

  /// L of a slot; -∞ where there is no state.
  SYMPOW_DEVICE double level(std::int64_t slot) const {
    return prefixes.sums.data ? block::uniform(load_one(chunks.enter, slot)) : -infinity;
  }
  /// The exponent of the unit of what is kept: M + p.
  SYMPOW_DEVICE Lanes<double> unit(std::int64_t slot, double level) const {
    return ceiling(Lanes<double>(level)) + block::convert<double>(load_one(chunks.shift, slot));
  }
  /// Eight entries of sums, of all terms.
  SYMPOW_DEVICE OctetOfRow octet(Lanes<std::int64_t> at, Lanes<bool> exists) const {
    OctetOfRow all(prefixes.sums, at, exists);
    if (sizeof(T) > 2 || !prefixes.rest.data) return all;
    const OctetOfRow rest(prefixes.rest, at, exists);
    SYMPOW_UNROLL
    for (int c = 0; c < 8; ++c) all.entries[c] += rest.entries[c];
    return all;
  }
};

/// The adjoint of the state after a chunk, as 16 keys of a warp read it.
struct AdjointOfKeys {
  std::int64_t slot, tokens;
  bool is_read = false;                            ///< by a key of the block
  Lanes<double> unit[2] = {-infinity, -infinity};  ///< of keys 8 g + lane / 4, -∞ of those that it does not have

  /// Keys from `first_key` on of a block from `top` on, of the chunk whose tokens are from `of_tokens` to `last` more.
  template <class T>
  SYMPOW_DEVICE AdjointOfKeys(const StatesOfChunks<T>& adjoints, const TokenArrays& arrays, std::int64_t of_slot,
                              std::int64_t of_tokens, int last, int top, int first_key)
      : slot(of_slot), tokens(of_tokens) {
    using namespace block;
    const double level = adjoints.level(slot);
    const int first_kept = uniform(load_one(arrays.reset, tokens + last));
    is_read = level != -infinity && first_kept < top + stage_rows;
    if (!is_read) return;
    const Lanes<double> to_end = adjoints.unit(slot, level) + load_one(arrays.sum, tokens + last);
    SYMPOW_UNROLL
    for (int g = 0; g < 2; ++g) {
      const Lanes<int> key = lane() / 4 + (first_key + 8 * g);
      const Lanes<double> u = load_one(arrays.key, key + tokens), gates = load_one(arrays.sum, key + tokens);
      unit[g] = where(key >= first_kept, where(u == -infinity, -gates, u) + to_end, Lanes<double>(-infinity));
    }
  }
};

/// Dφ(x̂)ᵀ S [u; o] of rows x̂, with vectors u of e channels and numbers o. In one pass over the state, 64 monomials
/// and the channels of a tile at a time:
///   W = u Sᵀ + o Zᵀ by tensor cores, and of monomial m = x_i1 ⋯ x_iP, W_m times the product of the others to each i_p
/// where columns of W come in eight groups of eight (state_rows.hpp): a lane has two columns of each group in
/// registers, so that what belongs to groups is summed over the four lanes of a row, and what belongs to columns is in
/// one lane. And, if asked for, Σ_m φ(x̂)_m S_m of a tile of channels. A row's sums may be over several
/// states, each times its own scale.
///
/// Sums are a lane's own, in shared memory: float, 64 d a block. Roundings: products of P - 1 entries of x̂, of P in φ,
/// and that times its scale where there are several states, to T.
template <class T, int P, int d>
struct StatePart {
  static constexpr int warps = 4, columns = tile_channels<T>, tile = stage_rows * columns, octets = d / 8;
  using Features = QueryFeatures<T, P, d, 1>;
  using Walk = typename Features::Walk;

  Features features;
  OctetSums<d> sums;
  Lanes<float> scale[2] = {0.f, 0.f}, coupling[2] = {0.f, 0.f};  // of rows 8 g + lane / 4: Σ_m φ_m W_m, a lane's part
  Lanes<float> run[2][2];                                        // P 2: of columns, over the stages of an octet

  SYMPOW_DEVICE StatePart(block::Shared<T> rows, int own, block::Shared<float> all_sums, int w)
      : features{rows, own, {}, {}}, sums(all_sums, w) {
    const Lanes<float> zero[4] = {0.f, 0.f, 0.f, 0.f};
    for (int n = 0; n < octets; ++n) sums.put(n, zero);
    clear_run();
  }
  /// Another state begins: what it gives is added times `to`, and not looked at where that is 0.
  SYMPOW_DEVICE void begin(const Lanes<float> (&to)[2]) {
    SYMPOW_UNROLL
    for (int g = 0; g < 2; ++g) {
      scale[g] = to[g];
      coupling[g] = 0.f;
    }
  }

  /// Adds what tile W of a stage gives; features.enter was called for it.
  SYMPOW_DEVICE void contract(const PairTile& w, const Walk& at) {
    if constexpr (P == 1) {
      SYMPOW_UNROLL
      for (int o = 0; o < 8; ++o) {
        add(8 * at.a + o, w[0][o]);
        SYMPOW_UNROLL
        for (int g = 0; g < 2; ++g) {
          const Lanes<block::Pair<T>> pair = row_pair<d>(features.queries, features.first + 8 * g, 8 * at.a + o);
          coupling[g] += w[0][o][2 * g] * block::lower(pair) + w[0][o][2 * g + 1] * block::upper(pair);
        }
      }
    } else {
      Lanes<float> group[8][2], column[2][2];
      SYMPOW_UNROLL
      for (int g = 0; g < 2; ++g) {
        const Lanes<float> of_columns[2] = {block::lower(features.two[g]), block::upper(features.two[g])};
        column[g][0] = column[g][1] = 0.f;
        SYMPOW_UNROLL
        for (int o = 0; o < 8; ++o) {
          const Lanes<block::Pair<T>> pair = features.pair(at, g, o / 2);
          const Lanes<float> of_group = o % 2 == 0 ? block::lower(pair) : block::upper(pair);
          group[o][g] = w[0][o][2 * g] * of_columns[0] + w[0][o][2 * g + 1] * of_columns[1];
          coupling[g] += group[o][g] * of_group;
          SYMPOW_UNROLL
          for (int h = 0; h < 2; ++h) column[g][h] += w[0][o][2 * g + h] * of_group;
        }
      }
      add_groups(P == 2 ? at.a : at.b, group);
      if constexpr (P > 2) {
        add_factors(at, column);
      } else {
        SYMPOW_UNROLL
        for (int g = 0; g < 2; ++g) SYMPOW_UNROLL
        for (int h = 0; h < 2; ++h) run[g][h] += column[g][h];
        if (at.a + 1 == stages_of_octet(P, at.b)) {
          const Lanes<float> four[4] = {run[0][0], run[0][1], run[1][0], run[1][1]};
          add(at.b, four);
          clear_run();
        }
      }
    }
  }

 private:
  SYMPOW_DEVICE void clear_run() {
    SYMPOW_UNROLL
    for (auto& two : run) two[0] = two[1] = 0.f;
  }
  SYMPOW_DEVICE void add(int octet, const Lanes<float> (&more)[4]) {
    Lanes<float> four[4];
    sums.take(four, octet);
    SYMPOW_UNROLL
    for (int r = 0; r < 4; ++r) four[r] += block::where(scale[r / 2] == 0.f, Lanes<float>(0.f), more[r] * scale[r / 2]);
    sums.put(octet, four);
  }

  /// Adds to an octet sums of group o = its channel, each over the four lanes of a row, who share them out: lane q of
  /// the four gets groups 2 q and 2 q + 1.
  SYMPOW_DEVICE void add_groups(int octet, const Lanes<float> (&group)[8][2]) {
    using namespace block;
    const Lanes<bool> upper_half = lane() % 4 >= 2, odd = lane() % 2 == 1;
    Lanes<float> half[4][2], four[4];
    SYMPOW_UNROLL
    for (int g = 0; g < 2; ++g) {
      SYMPOW_UNROLL
      for (int o = 0; o < 4; ++o)
        half[o][g] = where(upper_half, group[o + 4][g], group[o][g]) +
                     shuffle_xor(where(upper_half, group[o][g], group[o + 4][g]), 2);
      SYMPOW_UNROLL
      for (int h = 0; h < 2; ++h)
        four[2 * g + h] =
            where(odd, half[h + 2][g], half[h][g]) + shuffle_xor(where(odd, half[h][g], half[h + 2][g]), 1);
    }
    add(octet, four);
  }

  /// Adds what columns, the factors of a stage, give to their channels: lanes know their own two factors.
  SYMPOW_DEVICE void add_factors(const Walk& at, const Lanes<float> (&column)[2][2]) {
    using namespace block;
    const auto own = Monomial<P - 1>::template at<d>(8 * at.b + 8, lane() % 8 + 8 * at.a);
    Lanes<float> entry[std::size_t{P - 1}][2][2];  // of the lane's factors h, rows g
    SYMPOW_UNROLL
    for (int p = 0; p < P - 1; ++p) SYMPOW_UNROLL
    for (int h = 0; h < 2; ++h) {
      const Lanes<int> channel = shuffle(own.channel[p], lane() % 4 * 2 + h);
      const Lanes<int> from = octet_place<d>(lane() / 4 + features.first, channel / 8) + channel % 8;
      SYMPOW_UNROLL
      for (int g = 0; g < 2; ++g) {
        Lanes<T> one[1];
        load(one, features.queries, from + 8 * g * d);
        entry[p][g][h] = lower(join(one[0], one[0]));
      }
    }
    SYMPOW_UNROLL
    for (int p = 0; p < P - 1; ++p) {
      Lanes<float> product[2][2];
      SYMPOW_UNROLL
      for (int g = 0; g < 2; ++g) SYMPOW_UNROLL
      for (int h = 0; h < 2; ++h) {
        product[g][h] = column[g][h];
        SYMPOW_UNROLL
        for (int other = 0; other < P - 1; ++other)
          if (other != p) product[g][h] *= entry[other][g][h];
      }
      SYMPOW_ROLL
      for (int f = 0; f < 8; ++f) {
        const int channel = uniform(shuffle(own.channel[p], Lanes<int>(f)));
        const Lanes<bool> is_own = lane() % 4 == channel % 8 / 2;
        const bool is_odd = channel % 2 == 1;
        Lanes<float> four[4];
        SYMPOW_UNROLL
        for (int g = 0; g < 2; ++g) {
          const Lanes<float> of_factor = f % 2 == 0 ? product[g][0] : product[g][1];
          const Lanes<float> more = where(is_own, shuffle(of_factor, lane() / 4 * 4 + f / 2), 0.f);
          four[2 * g] = is_odd ? Lanes<float>(0.f) : more;
          four[2 * g + 1] = is_odd ? more : Lanes<float>(0.f);
        }
        add(channel / 8, four);
      }
    }
  }
};

/// Walks through the state of a slot: adds to `part` Dφ(x̂)ᵀ S [u; o], if asked for, and to `product` φ(x̂) S, times
/// the scale of the part if there are several states, of the channels of a tile. A split state comes tile by tile, each
/// followed by its rest. Vectors u come by `bring_vectors(ring, tile)`; `vectors` and `tiles` are rings of two tiles,
/// `normaliser` of 128 floats. All warps of the block, who are in step at its end. x̂ may still be on its way.
template <bool has_product, block::Products products, class T, int P, int d, int channels, class Bring>
SYMPOW_DEVICE void read_state(StatePart<T, P, d>& part, Lanes<float> (&product)[std::size_t{channels / 8}][4],
                              const Prefixes<T>& state, std::int64_t slot, int e, int tile, bool contracts,
                              bool are_several, const Lanes<float> (&offset)[2], block::Shared<T> vectors,
                              block::Shared<T> tiles, block::Shared<float> normaliser,
                              const TileCopy<T, channels, 64, 4>& copy, const Bring& bring_vectors, int w) {
  using namespace block;
  constexpr int columns = StatePart<T, P, d>::columns, entries = StatePart<T, P, d>::tile;
  constexpr int stages = StatePart<T, P, d>::Features::stages;
  const int span = contracts ? (e + columns - 1) / columns : 1, own = 16 * w;
  const int log_terms = sizeof(T) == 2 && state.rest.data ? 1 : 0, terms = 1 << log_terms;
  const int of_stage = span * terms, end = stages * of_stage;
  const std::int64_t first_row = slot * (stages * stage_rows);
  const auto bring = [&](int n, const Step& of) {
    const int t = tile + span - 1 - (of.part >> log_terms);
    copy.bring(tiles, n % 2 * entries, n % terms == 0 ? state.sums : state.rest,
               copy.source((first_row + of.whole * stage_rows) * e + t * columns, e), e, 0, stage_rows,
               copy.column + t * columns < e);
    if (!contracts) return;
    if (of.part == 0 && w == 0)
      cp_async<16>(normaliser, lane() * 4 + of.whole % 2 * stage_rows, state.whole,
                   lane() * 4 + (first_row + of.whole * stage_rows), 16, lane() < 16);
    if (n == 0 || (span > 1 && n % terms == 0)) bring_vectors((n >> log_terms) % 2 * entries, t);
  };
  Step of{of_stage};
  bring(0, of);
  cp_async_commit();
  typename StatePart<T, P, d>::Walk walk;
  PairTile sum;
  for (int n = 0; n < end; ++n, of = of.next()) {
    const int ring = n % 2 * entries;
    cp_async_wait<0>();
    barrier();
    if (n + 1 < end) bring(n + 1, of.next());
    cp_async_commit();
    if (contracts) {
      if (of.part == 0) clear(sum);
      const QueryTiles<T, columns, 1, products> left(vectors.after(span > 1 ? (n >> log_terms) % 2 * entries : 0), own);
      left.add_scores(sum, tiles.after(ring), 0);
    }
    const int more = of_stage - 1 - of.part;  // parts of the stage after this one
    if (more >= terms) continue;
    if (more + 1 == terms) part.features.enter(walk);
    if constexpr (has_product) {
      SYMPOW_UNROLL_BY(sizeof(T) == 2 ? stage_rows / 16 : 1)
      for (int step = 0; step < stage_rows / 16; ++step) {
        Lanes<Pair<T>> phi[4], right[std::size_t{columns / 16}][4];
        part.features.fragment(phi, walk, step, 0);
        if (are_several) {
          SYMPOW_UNROLL
          for (int r = 0; r < 4; ++r) phi[r] = multiply(phi[r], pack<T>(part.scale[r % 2], part.scale[r % 2]));
        }
        load_right<columns>(right, tiles.after(ring), 16 * step);
        multiply_right<products>(product, phi, right);
      }
    }
    if (more > 0) continue;
    if (contracts) {
      SYMPOW_UNROLL
      for (int o = 0; o < 8; ++o) {
        Lanes<float> one[2];
        load(one, normaliser, lane() % 4 * 2 + (8 * o + of.whole % 2 * stage_rows));
        SYMPOW_UNROLL
        for (int r = 0; r < 4; ++r) sum[0][o][r] += offset[r / 2] * one[r % 2];
      }
      part.contract(sum, walk);
    }
    walk.advance();
  }
  barrier();
}

}  // namespace sympow::cuda
