// Gradients of keys and values, on tensor cores: each key with the adjoint state and the rows that saw it.
#pragma once

#include "../layout/blocks.hpp"
#include "angle_rows.hpp"
#include "state_part.hpp"

namespace sympow::cuda {

/// dv_j = 2^{u_j + G_c} H φ(k̂_j) + Σ_i s_ij dŷ_i,   s_ij = 2^{u_j + h_i} m_i (q̂_i·k̂_j)^P
/// dk_j = 2^{-x_j} (2^{u_j + G_c} Dφ(k̂_j)ᵀ H [v_j; 1] + Σ_i P 2^{u_j + h_i} m_i (q̂_i·k̂_j)^{P-1} c_ij q̂_i)
/// over the adjoint H of the state after the chunk, where it has key j, and the rows i ≥ j of the chunk that see the
/// key, of all state and query heads that read it; layout/gradients.hpp has the rest.
/// A key of zeros has x_j = 0 and u_j = -G_j here: dk_j of P 1 is not 0. And `key` and `later` of flows, `KeptSums`.
///
/// A block of four warps has 64 keys of a chunk and head, 16 a warp, and 64 channels of dv (of floats 32); the first
/// of them dk, too.
/// It walks through the adjoint states (state_part.hpp), then through the query heads of its group in order, of each
/// blocks of 64 rows from its own on, and for dk their dŷ by as many channels, through two stages. `has_angles`: own
/// blocks come last, for what comes back to angles through keys is made of the sums before. 2^{h_i - R_j} is at most 1;
/// sums are relative to E_j, the largest u_j + R_j, or u_j + G_c + M + p, so far.
///
/// Roundings: 2^-E_j s_ij and 2^{-E_j - s} dx_ij to T, then dv and dk; sums in float. Cost of a pair: 4 d + 4 e
/// operations, and 2 d more for each tile of values after the first; of a key of a state 4 R e, R rows.
template <class T, int P, int d, bool has_angles = false, block::Products products = block::Products::exact>
struct KeyGradients {
  static constexpr int warps = 4, threads = 32 * warps, rows = block_tokens, columns = tile_channels<T>;
  static constexpr int blocks_per_multiprocessor = 2;
  static constexpr bool are_many = has_angles && d > 64;  ///< sums: those of values wait in shared memory
  static constexpr int shared_bytes = (are_many ? 4 * rows * columns : 0) +
                                      static_cast<int>(sizeof(T)) * (3 * rows * d + 4 * rows * columns) +
                                      2 * rows * (8 + 4 + 4 + 4);
  template <int channels>
  using Tiles = QueryTiles<T, channels, 1, products, !has_angles>;

  struct Args {
    Rows<const T> queries, d_rows;  ///< q̂, dŷ
    Rows<const T> keys, values;     ///< k̂, v
    Rows<T> d_keys, d_values;
    TokenArrays tokens;
    RowArrays of_rows;
    FlowArrays flows;
    Sequences sequences;
    Heads heads;
    int e;
    StatesOfChunks<T> adjoints = {};  ///< after chunks
    AngleArrays angles = {};
  };

  SYMPOW_HOST_DEVICE static int tiles(int e) { return (e + columns - 1) / columns; }
  /// x: blocks of keys, times tiles of value channels. y: key heads.
  static Blocks blocks(const Sequences& sequences, const Heads& heads, int e) {
    return {TokenBlock::count(sequences) * tiles(e), heads.key};
  }

  SYMPOW_DEVICE static void run(const Args& x) {
    using namespace block;
    const TokenBlock of(x.sequences, block_index(0) / tiles(x.e));
    if (of.top >= of.length) return;
    const int w = warp(), key_head = block_index(1), own = 16 * w, first_key = of.top + own;
    const int tile = block_index(0) % tiles(x.e), span = tile == 0 ? tiles(x.e) : 1;  // stages a block of rows
    const bool is_first = tile == 0;
    const int group = x.heads.query / x.heads.key, own_block = of.top / rows;
    const int blocks = (of.length + rows - 1) / rows - own_block, end = group * blocks * span;

    Arena arena;
    const auto keys = arena.take<T>(rows * d), queries = arena.take<T>(2 * rows * d);
    const auto values = arena.take<T>(2 * rows * columns), d_rows = arena.take<T>(2 * rows * columns);
    const auto exponents = arena.take<double>(2 * rows);
    const auto factors = arena.take<float>(2 * rows), offsets = arena.take<float>(2 * rows);
    const auto resets = arena.take<std::int32_t>(2 * rows);
    const OctetSums<columns, are_many> waiting_values(arena.take<float>(are_many ? rows * columns : 0), w);

    struct BlockOfRows {
      int head, n;  // block n from the own one on
    };
    const auto block_of = [&](int m) {
      if constexpr (!has_angles) return BlockOfRows{key_head * group + m / blocks, m % blocks};
      const int later = blocks - 1, place = m - group * later;
      return place < 0 ? BlockOfRows{key_head * group + m / later, 1 + m % later}
                       : BlockOfRows{key_head * group + place, 0};
    };
    const auto slot_of = [&](int head) {
      return (std::int64_t{head} * x.sequences.slots + of.slot) * x.sequences.chunk;
    };
    const TileCopy<T, d, rows, warps> wide_copy(w);
    const TileCopy<T, columns, rows, warps> copy(w);
    const auto bring_values = [&](int ring, int t) {
      copy.bring(values, ring, x.values.data,
                 copy.source(x.values.at(of.b, of.begin + of.top, key_head) + t * columns, x.values.token),
                 x.values.token, 0, of.length - of.top, copy.column + t * columns < x.e);
    };
    const auto bring = [&](int stage) {
      const int m = stage / span, t = tile + span - 1 - stage % span;
      const auto [head, n] = block_of(m);
      const int from = (own_block + n) * rows, ring = stage % 2 * rows * columns, place = m % 2 * rows;
      const Lanes<bool> exists = copy.column + t * columns < x.e;
      if (stage % span == 0) {
        wide_copy.bring(queries, m % 2 * rows * d, x.queries.data,
                        wide_copy.source(x.queries.at(of.b, of.begin + from, head), x.queries.token), x.queries.token,
                        0, of.length - from, true);
        const std::int64_t row = slot_of(head) + from, token = slot_of(x.heads.state_of_query(head)) + from;
        if (w == 0) cp_async<16>(exponents, lane() * 2 + place, x.of_rows.exponent, lane() * 2 + row, 16);
        if (w == 1) cp_async<16>(factors, lane() * 4 + place, x.of_rows.factor, lane() * 4 + row, 16, lane() < 16);
        if (w == 2) cp_async<16>(offsets, lane() * 4 + place, x.of_rows.offset, lane() * 4 + row, 16, lane() < 16);
        if (w == 3) cp_async<16>(resets, lane() * 4 + place, x.tokens.reset, lane() * 4 + token, 16, lane() < 16);
      }
      copy.bring(d_rows, ring, x.d_rows.data,
                 copy.source(x.d_rows.at(of.b, of.begin + from, head) + t * columns, x.d_rows.token), x.d_rows.token, 0,
                 of.length - from, exists);
      if (is_first && (stage == 0 || span > 1)) bring_values(ring, t);
    };
    wide_copy.bring(keys, 0, x.keys.data, wide_copy.source(x.keys.at(of.b, of.begin + of.top, key_head), x.keys.token),
                    x.keys.token, 0, of.length - of.top, true);
    const auto shift = [&] {  // the unit of dx
      return load_one(x.of_rows.unit, std::int64_t{key_head} * group * x.sequences.slots + of.slot);
    };
    const Lanes<float> shrink = two_to(-shift()) * static_cast<float>(P);
    Lanes<float> key_sum[std::size_t{d / 8}][4], value_sum[std::size_t{columns / 8}][4], after[2], scale[2];
    Lanes<double> reference[2] = {-infinity, -infinity};  // E_j
    TwoFloats peak[2];                                    // R_j - anchor
    double anchor = 0.;
    SYMPOW_UNROLL
    for (auto& sum : value_sum) SYMPOW_UNROLL
    for (auto& s : sum) s = 0.f;

    // The adjoints of the states that have these keys, relative to the largest weight.
    const int states_of_key = x.heads.state / x.heads.key;
    const auto relative = [](const Lanes<double>& to, const Lanes<double>& all) {
      return where(to == -infinity, Lanes<float>(0.f), two_to(to - all));
    };
    const auto adjoint_of = [&](int n) {
      const int state_head = key_head * states_of_key + n;
      return AdjointOfKeys(x.adjoints, x.tokens, std::int64_t{state_head} * x.sequences.slots + of.slot,
                           slot_of(state_head), of.length - 1, of.top, first_key);
    };
    for (int n = 0; n < states_of_key && x.adjoints.prefixes.sums.data; ++n) {
      const AdjointOfKeys a = adjoint_of(n);
      SYMPOW_UNROLL
      for (int g = 0; g < 2; ++g) reference[g] = larger(reference[g], a.unit[g]);
    }
    StatePart<T, P, d> part(keys, own, queries.template as<float>(), w);
    for (int n = 0; n < states_of_key && x.adjoints.prefixes.sums.data; ++n) {
      const AdjointOfKeys a = adjoint_of(n);
      const Lanes<float> to[2] = {relative(a.unit[0], reference[0]), relative(a.unit[1], reference[1])};
      part.begin(to);
      if (a.is_read) {
        const Lanes<float> one[2] = {1.f, 1.f};
        read_state<true, products>(part, value_sum, x.adjoints.prefixes, a.slot, x.e, tile, is_first, states_of_key > 1,
                                   one, values, d_rows, exponents.template as<float>(), copy, bring_values, w);
        SYMPOW_UNROLL
        for (int o = 0; o < columns / 8 && n == 0; ++o) SYMPOW_UNROLL
        for (int r = 0; r < 4; ++r)  // what the others read may be NaN
          value_sum[o][r] = where(a.unit[r / 2] == -infinity, Lanes<float>(0.f), value_sum[o][r]);
      }
      if (!is_first || !x.flows.later.data) continue;
      SYMPOW_UNROLL
      for (int g = 0; g < 2; ++g) {
        const Lanes<double> total[1] = {where(a.unit[g] == -infinity, Lanes<double>(0.),
                                              coupling_of(sum_of_row(part.coupling[g]), wide_two_to(a.unit[g])))};
        store(x.flows.later, lane() / 4 + (a.tokens + first_key + 8 * g), total, lane() % 4 == 0);
      }
    }
    part.sums.take(key_sum);
    SYMPOW_UNROLL
    for (auto& sum : key_sum) SYMPOW_UNROLL
    for (auto& s : sum) s *= shrink * (1.f / P);
    if (has_angles && is_first && x.angles.later_chunks.sums.data)
      keep_sums<d>(x.angles.later_chunks, slot_of(key_head) + of.top + own, key_sum, reference);
    waiting_values.put(value_sum);
    barrier();  // the sums make room
    bring(0);
    cp_async_commit();

    const auto reference_of = [&](int head, int g) {  // u_j + R_j; asked anew: some registers less than kept
      const Lanes<int> key = lane() / 4 + (first_key + 8 * g);
      const std::int64_t tokens = slot_of(x.heads.state_of_query(head));
      const Lanes<double> u = load_one(x.tokens.key, key + tokens), gates = load_one(x.tokens.sum, key + tokens);
      return where(u == -infinity, -gates, u) + load_one(x.of_rows.peak, key + slot_of(head));
    };
    PairTile s, c;
    for (int stage = 0; stage < end; ++stage) {
      const int m = stage / span;
      const auto [head, n] = block_of(m);
      const int from = (own_block + n) * rows, ring = stage % 2 * rows * columns;
      cp_async_wait<0>();
      barrier();
      if (stage + 1 < end) bring(stage + 1);
      cp_async_commit();

      if (n <= (has_angles ? 1 : 0) && stage % span == 0) {  // a head begins
        if (has_angles && is_first && m == group * (blocks - 1))
          keep_sums<d>(x.angles.later_rows, slot_of(key_head) + of.top + own, key_sum, reference);
        waiting_values.take(value_sum);
        Lanes<double> level[2];
        SYMPOW_UNROLL
        for (int g = 0; g < 2; ++g) {
          level[g] = load_one(x.of_rows.peak, lane() / 4 + (slot_of(head) + first_key + 8 * g));
          const Lanes<double> own_reference = reference_of(head, g), all = larger(reference[g], own_reference);
          const Lanes<float> again = relative(reference[g], all);
          scale[g] = relative(own_reference, all);
          SYMPOW_UNROLL
          for (int h = 0; h < 2; ++h) {
            SYMPOW_UNROLL
            for (int o = 0; o < d / 8; ++o) key_sum[o][2 * g + h] *= again;
            SYMPOW_UNROLL
            for (int o = 0; o < columns / 8; ++o) value_sum[o][2 * g + h] *= again;
          }
          reference[g] = all;
          level[g] = where(level[g] == -infinity, Lanes<double>(0.), level[g]);
          after[g] = 0.f;
        }
        waiting_values.put(value_sum);
        const double first = uniform(level[0]);
        anchor = first == first ? first : 0.;
        SYMPOW_UNROLL
        for (int g = 0; g < 2; ++g) peak[g] = TwoFloats::of(level[g] - anchor);
      }
      if (is_first) {
        if (stage % span == 0) clear(c);
        const Tiles<columns> value_tiles(values.after(span > 1 ? ring : 0), own);
        value_tiles.add_scores(c, d_rows.after(ring), 0);
      }
      if ((stage + 1) % span != 0) continue;

      const Tiles<d> key_tiles(keys, own);
      key_tiles.scores(s, queries.after(m % 2 * rows * d), 0);
      const ColumnExponents h_i(exponents, m % 2 * rows, anchor);
      SYMPOW_UNROLL
      for (int o = 0; o < 8; ++o) {
        const Lanes<int> first = lane() % 4 * 2 + 8 * o, place = first + m % 2 * rows;
        Lanes<float> factor[2], offset[2];
        Lanes<std::int32_t> seen[2];
        load(factor, factors, place);
        load(offset, offsets, place);
        load(seen, resets, place);
        SYMPOW_UNROLL
        for (int h = 0; h < 2; ++h) {
          const TwoFloats column = h_i.of(o, h);
          SYMPOW_UNROLL
          for (int g = 0; g < 2; ++g) {
            Lanes<float>&score = s[0][o][2 * g + h], &slope = c[0][o][2 * g + h];
            const Lanes<int> key = lane() / 4 + (first_key + 8 * g);
            const Lanes<bool> is_seen = first + (h + from) >= key && seen[h] <= key;
            const Lanes<float> steep = power<P - 1>(score) * (weight_of(column, peak[g]) * factor[h]);
            const Lanes<float> value = where(is_seen, steep * score, Lanes<float>(0.f));
            score = value * scale[g];
            if (!is_first) continue;
            const Lanes<float> coupling = slope + offset[h];
            slope = where(is_seen, steep * coupling, Lanes<float>(0.f)) * (shrink * scale[g]);
            if (n > 0) after[g] += where(is_seen, value * coupling, Lanes<float>(0.f));
          }
        }
      }
      waiting_values.take(value_sum);
      add_product<products, columns>(value_sum, s, d_rows.after(ring));
      waiting_values.put(value_sum);
      if (!is_first) continue;
      add_product<products, d>(key_sum, c, queries.after(m % 2 * rows * d));
      if (!x.flows.key.data || n + 1 < blocks) continue;
      SYMPOW_UNROLL
      for (int g = 0; g < 2; ++g) {
        const Lanes<double> total[1] = {coupling_of(sum_of_row(after[g]), wide_two_to(reference_of(head, g)))};
        store(x.flows.key, lane() / 4 + (slot_of(head) + first_key + 8 * g), total, lane() % 4 == 0);
      }
    }

    waiting_values.take(value_sum);
    const Lanes<float> one[2] = {1.f, 1.f};
    const int left = of.length - first_key;
    barrier();  // nobody reads the rows any more that results take the place of
    store_sums<columns>(x.d_values, x.d_values.at(of.b, of.begin + first_key, key_head) + tile * columns, value_sum,
                        one, reference, d_rows, own, left, x.e - tile * columns);
    if (!is_first) return;
    if (x.angles.rotary.rates.data) {
      const OctetSums<d> waiting(queries.template as<float>(), w);
      waiting.put(key_sum);
      turn_back(waiting, x.angles.rotary, TokenBlock(x.sequences, block_index(0) / tiles(x.e)), key_head, first_key);
      waiting.take(key_sum);
    }
    const std::int64_t tokens = slot_of(x.heads.state_of_query(key_head * group));
    SYMPOW_UNROLL
    for (int g = 0; g < 2; ++g) {
      const Lanes<float> inverse = load_one(x.tokens.inverse, lane() / 4 + (tokens + first_key + 8 * g));
      reference[g] += convert<double>(shift() + where(inverse == 0.f, 0, ceiling_log2(inverse)));
    }
    store_sums<d>(x.d_keys, x.d_keys.at(of.b, of.begin + first_key, key_head), key_sum, one, reference, keys, own, left,
                  d);
  }
};

}  // namespace sympow::cuda
