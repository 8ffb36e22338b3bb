// Rows of attention, on tensor cores: what a query reads of the state before its chunk, and the keys of its chunk.
#pragma once

#include "../layout/blocks.hpp"
#include "../layout/chunks.hpp"
#include "../layout/tile_copy.hpp"
#include "add_keys.hpp"
#include "query_features.hpp"
#include "write_rows.hpp"

namespace sympow::cuda {

/// y_i = Σ_m φ(q̂_i)_m S_m 2^{M - r_i} + Σ_j (q̂_i·k̂_j)^P 2^{u_j - r_i} v_j over the keys j ≤ i of the chunk, and the
/// same sum of ones, by which it is divided if asked for; chunks.hpp has u, r and M. q̂ is q times a power of 2, its
/// largest entry in [½, 1). With rotary queries turn first; keys come turned.
///
/// A block of 8 warps, for P 1 of 4, has 32 queries a warp of a chunk and head, and 64 value channels; of floats 8
/// warps have 16. The stages of the state, 64 monomials each, and then 64 keys and values each, come through one ring;
/// those of a state in two terms come twice, the second time with the rest and zeros for the normaliser.
/// Sums stay in registers, (64 + 8) channels: the first of the last 8 are the normaliser, in the state in three terms
/// of T. Keys before those of the warp weigh 2^{u_j - R}, R = r of its first row, and their sum is multiplied once, by
/// 2^{R - r_i}; among the warp's own keys each weight is formed alone. Both exponents are at most 0.
///
/// Roundings: φ(q̂) and weighted scores to T, state and values as they are; sums in float; y to T.
/// Cost of a query: 2 D' (e + 8) operations for each term of the state, D' ≥ D as QueryFeatures says; 2 (d + e + 8) a
/// key.
template <class T, int P, int d, block::Products products = block::Products::exact>
struct Attention {
  using Two = block::Pair<T>;
  static constexpr int D = monomial_count(P, d);
  static constexpr bool wide = sizeof(T) > 2;  // such entries leave room for less
  static constexpr int warps = P == 1 && !wide ? 4 : 8, row_tiles = wide ? 1 : 2, groups = 2 * row_tiles,
                       rows_of_warp = 16 * row_tiles, rows_of_block = warps * rows_of_warp;
  static constexpr int columns = 64, stages = wide ? 2 : d > 64 ? 3 : 4;
  static constexpr int under_way = wide ? 0 : 1;        // products, when the next stage comes
  static constexpr int ahead = stages - 1 - under_way;  // stages on their way
  static constexpr int scales = ahead + 1;  // stages of what no product reads: exponents of keys, their powers of 2
  static constexpr int threads = 32 * warps, blocks_per_multiprocessor = 8 / warps;
  static constexpr int query_width = d > columns ? d : columns;  // rows of queries make room for those of y
  static constexpr int right_entries = stage_rows * columns;     // of a stage: rows of the state, or values
  static constexpr int left_entries = stage_rows * query_width;  // keys, or the normaliser, a row of 64 a monomial
  static constexpr int entries = rows_of_block * query_width + stages * (right_entries + left_entries) + 16 * 8;
  static constexpr int shared_bytes = entries * static_cast<int>(sizeof(T)) + scales * stage_rows * (8 + 4);
  using Features = QueryFeatures<T, P, d, row_tiles>;

  struct Args {
    Rows<const T> queries, keys, values;
    Rows<T> rows;
    Rows<float> condition;  ///< mass / normaliser of the state's part; +∞ where a row is degenerate. Null: not wanted
    TokenArrays tokens;
    ChunkArrays chunks;
    Prefixes<T> prefixes;
    Sequences sequences;
    Heads heads;
    int e;
    bool has_state, normalised;
    double scale_exponent;  ///< rows that are not normalised are multiplied by 2^scale_exponent times the sign
    float scale_sign;
    float noise;         ///< τ: a row is degenerate unless its normaliser exceeds τ times the mass it read through φ
    Rotary rotary = {};  ///< of queries
    Rows<float> factors = {};  ///< 1 / normaliser of normalised rows, 0 where one is degenerate. Null: not wanted
  };

  SYMPOW_HOST_DEVICE static int tiles(int e) { return (e + columns - 1) / columns; }
  SYMPOW_HOST_DEVICE static int row_blocks(int chunk) { return (chunk + rows_of_block - 1) / rows_of_block; }
  /// x: the chunks of all sequences, times blocks of rows, times tiles of value channels. y: query heads.
  static Blocks blocks(const Sequences& sequences, const Heads& heads, int e) {
    return {std::int64_t{sequences.batch} * sequences.most_chunks() * row_blocks(sequences.chunk) * tiles(e),
            heads.query};
  }

  SYMPOW_DEVICE static void run(const Args& x) {
    using namespace block;
    const int w = warp(), head = block_index(1), state_head = x.heads.state_of_query(head);
    const int key_head = x.heads.key_of_state(state_head);
    const int tile = block_index(0) % tiles(x.e), place = block_index(0) / tiles(x.e);
    const int blocks_of_chunk = row_blocks(x.sequences.chunk), top = place % blocks_of_chunk * rows_of_block;
    const int chunk = place / blocks_of_chunk % x.sequences.most_chunks();
    const int b = place / blocks_of_chunk / x.sequences.most_chunks();
    const Sequence sequence = x.sequences[b];
    const int left = sequence.length - chunk * x.sequences.chunk;
    const int length = left < x.sequences.chunk ? left : x.sequences.chunk;
    if (top >= length) return;
    const std::int64_t begin = sequence.first + std::int64_t{chunk} * x.sequences.chunk;
    const std::int64_t slot = std::int64_t{state_head} * x.sequences.slots + sequence.slot + chunk;
    const std::int64_t token_slot = slot * x.sequences.chunk;

    const int seen = uniform(load_one(x.tokens.reset, token_slot + top));  // no row of the block sees what lies before
    const bool is_split = !wide && x.prefixes.rest.data;
    const int state_stages = x.has_state && seen < 0 ? (is_split ? 2 : 1) * Features::stages : 0;
    const int first_key = (seen > 0 ? seen : 0) / stage_rows * stage_rows;
    const int bottom = top + rows_of_block < length ? top + rows_of_block : length;
    const int end_stage = state_stages + (bottom - first_key + stage_rows - 1) / stage_rows;

    Arena arena;
    const auto queries = arena.take<T>(rows_of_block * query_width);
    const auto right_ring = arena.take<T>(stages * right_entries), left_ring = arena.take<T>(stages * left_entries);
    const auto key_ring = arena.take<double>(scales * stage_rows);
    const auto inverse_ring = arena.take<float>(scales * stage_rows);
    const auto ones = arena.take<T>(16 * 8);
    write_ones(ones, w);

    const TileCopy<T, d, rows_of_block, warps> query_copy(w);
    const TileCopy<T, d, stage_rows, warps> key_copy(w);
    const TileCopy<T, columns, stage_rows, warps> value_copy(w);
    const Lanes<bool> value_exists = value_copy.column + tile * columns < x.e;
    const std::int64_t state_row = slot * Features::stages * stage_rows;
    Lanes<std::int64_t> state_at = value_copy.source(state_row * x.e + tile * columns, x.e);
    Lanes<std::int64_t> key_at = key_copy.source(x.keys.at(b, begin + first_key, key_head), x.keys.token);
    Lanes<std::int64_t> value_at =
        value_copy.source(x.values.at(b, begin + first_key, key_head) + tile * columns, x.values.token);
    const auto bring_state = [&](int stage) {
      const int ring = stage % stages;
      const bool is_rest = !wide && stage >= Features::stages;  // without a normaliser, of which nothing is left
      value_copy.bring(right_ring, ring * right_entries, is_rest ? x.prefixes.rest : x.prefixes.sums, state_at, x.e, 0,
                       stage_rows, value_exists);
      if (w < stage_rows / 32) {
        const Lanes<int> row = lane() + w * 32;
        constexpr int bytes = 4 * sizeof(T);
        cp_async<bytes>(left_ring, octet_place<columns>(row, 0) + ring * left_entries, x.prefixes.normaliser,
                        (row + (state_row + stage * stage_rows)) * 4, is_rest ? 0 : bytes);
      }
    };
    const auto bring_keys = [&](int stage) {
      const int from = first_key + (stage - state_stages) * stage_rows;
      const int ring = stage % stages, scale = stage % scales * stage_rows;
      key_copy.bring(left_ring, ring * left_entries, x.keys.data, key_at, x.keys.token, seen - from, length - from,
                     true);
      value_copy.bring(right_ring, ring * right_entries, x.values.data, value_at, x.values.token, seen - from,
                       length - from, value_exists);
      if (w == 0) cp_async<16>(key_ring, lane() * 2 + scale, x.tokens.key, lane() * 2 + (token_slot + from), 16);
      if (w == 1)
        cp_async<16>(inverse_ring, lane() * 4 + scale, x.tokens.inverse, lane() * 4 + (token_slot + from), 16,
                     lane() < 16);
    };
    const auto bring = [&](int stage) {  // one after the other
      if (stage < state_stages) {
        bring_state(stage);
        state_at += std::int64_t{stage_rows} * x.e;
        if (stage + 1 == Features::stages) state_at += -std::int64_t{Features::stages * stage_rows} * x.e;
      } else {
        if (stage < end_stage) bring_keys(stage);
        key_at += stage_rows * x.keys.token;
        value_at += stage_rows * x.values.token;
      }
      cp_async_commit();
    };
    const auto wait_for_stage = [&] {
      if constexpr (under_way == 0) group_wait<T, 0>();  // the stage that comes next takes the place of its factors
      cp_async_wait<ahead - 1>();
      publish<T>();
      barrier();
    };

    query_copy.bring(queries, 0, x.queries.data, query_copy.source(x.queries.at(b, begin + top, head), x.queries.token),
                     x.queries.token, 0, length - top, true);
    for (int from = w * 32; from < stages * stage_rows; from += threads) {  // to the right of the normaliser's terms
      const Lanes<int> row = lane() + from, ring = row / stage_rows;
      const Lanes<Two> zero[2] = {Two{}, Two{}};
      store(left_ring.template as<Two>(), (ring * left_entries + octet_place<columns>(row % stage_rows, 0) + 4) / 2,
            zero, ring < state_stages);
    }
    SYMPOW_UNROLL
    for (int n = 0; n < ahead; ++n) bring(n);

    const int own = w * rows_of_warp, first_row = top + own;
    const bool idle = first_row >= length;
    Lanes<double> state_level[1] = {-infinity};
    if (state_stages > 0) load(state_level, x.chunks.enter, Lanes<std::int64_t>(slot));
    const RowLevels<groups> levels(x.tokens, token_slot, idle ? top : first_row, state_level[0]);

    cp_async_wait<ahead - 1>();
    barrier();  // all queries have come
    const auto norms = take_queries<d, groups>(queries, top, x.rotary, b, key_head, begin, length);
    Features features{queries, own, {}, {}};
    Lanes<float> sum[std::size_t{row_tiles}][columns / 8 + 1][4];
    each(sum, [](Lanes<float>& s, int) { s = 0.f; });

    typename Features::Walk walk;
    for (int stage = 0; stage < state_stages; ++stage, walk.advance()) {
      features.enter(walk);
      wait_for_stage();
      const int ring = stage % stages;
      Lanes<Two> phi[std::size_t{under_way + 1}][std::size_t{row_tiles}][4];
      SYMPOW_UNROLL_BY(wide ? 1 : stage_rows / 16)
      for (int step = 0; step < stage_rows / 16; ++step) {
        group_wait<T, under_way>();  // the product of two steps before is done with this φ
        SYMPOW_UNROLL
        for (int t = 0; t < row_tiles; ++t) features.fragment(phi[step % (under_way + 1)][t], walk, step, t);
        group_mma<products, 64>(sum, phi[step % (under_way + 1)], right_ring, ring * stage_rows + step * 16, left_ring,
                                ring * (left_entries / columns) + step * 16);
        group_commit<T>();
        if (step == 0) bring(stage + ahead);  // while tensor cores have work
      }
    }
    group_finish<T>(sum);
    const bool sees_state = state_stages > 0 && levels.first_seen < 0;
    Lanes<float> mass = 0.f;  // of the state, relative to the first row
    if (sees_state) {
      const Lanes<double> relative = ceiling(state_level[0]) - levels.anchor;
      mass = load_one(x.chunks.mass, slot) * two_to(relative);
      const Lanes<float> unit = two_to(relative + load_one(x.chunks.shift, slot));
      each(sum, [&](Lanes<float>& s, int) { s *= unit; });
    } else if (state_stages > 0) {
      each(sum, [](Lanes<float>& s, int) { s = 0.f; });
    }

    const QueryTiles<T, d, row_tiles, products> query_tiles(queries, own);
    const int last_row = top + (w / 4 * 4 + 3) * rows_of_warp;  // of the four warps that multiply together
    static_assert((rows_of_block - 4 * rows_of_warp + stage_rows - 1) / stage_rows < stages,
                  "after a group's last product the block has too few stages to take the place of its factors");
    for (int stage = state_stages; stage < end_stage; ++stage) {
      wait_for_stage();
      bring(stage + ahead);
      SYMPOW_ROLL
      for (int part = 0; part < stage_rows; part += rows_of_warp) {
        const int key = first_key + (stage - state_stages) * stage_rows + part;
        const int from = stage % stages * stage_rows + part;
        if (key > last_row || key >= length) continue;
        add_keys<P, products>(sum, query_tiles, levels, first_row, key, left_ring.after(stage % stages * left_entries),
                              part, key_ring, inverse_ring, part + stage % scales * stage_rows, right_ring, from, ones);
      }
    }
    group_finish<T>(sum);
    constexpr bool reads_late = !QueryTiles<T, d, row_tiles>::kept;  // queries that rows of y take the place of
    if constexpr (reads_late && d < columns) barrier();              // those of other warps, too
    if (idle) return;
    if constexpr (reads_late) warp_barrier();

    const RowPlaces place_of_rows{b, head, tile, begin, first_row, length};
    write_rows<P>(x, place_of_rows, sum, levels, norms, mass, queries, w * rows_of_warp * query_width / columns,
                  [&](Lanes<int> row) { return load_one(x.tokens.sum, row + token_slot); });
  }
};

}  // namespace sympow::cuda
