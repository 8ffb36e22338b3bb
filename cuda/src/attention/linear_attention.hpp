// Rows of attention of P 1, of which a state is as small as a tile of keys: a block goes along its chunk with the
// state.
#pragma once

#include "attention.hpp"

namespace sympow::cuda {

/// Whether rows of the chunked form are those of LinearAttention; `bytes` of an element.
SYMPOW_HOST_DEVICE constexpr bool goes_along_chunks(int P, int d, std::size_t bytes) {
  return P == 1 && d % 64 == 0 && bytes == 2;
}
template <class T, int P, int d>
inline constexpr bool goes_along = goes_along_chunks(P, d, sizeof(T));

/// Attention of P 1 in linear time. A block of 4 warps has a chunk of a query head, and 64 value channels. It takes 64
/// tokens at a time, a tile: their rows read the state before the tile, T(2^-p S), and the keys of the tile as in
/// Attention, 16 rows a warp; then the tile joins the state,
///
///   S ← 2^{M - M'} S + Σ_j w_j k̂_j v_jᵀ,   w_j = 2^{u_j - M'}      Z and A alike, of v = 1 and ‖k̂_j‖
///
/// M' = ⌈level⌉ the unit after it: r of the tile's last row is the level. u has no gates after the key in it, so S
/// never decays and both exponents are at most 0. S is 0 before a gate of 0, and the tile's keys before it are not
/// looked at. A warp has 16 of each 64 channels of S in registers, in float; tiles come two at a time.
///
/// Roundings: those of Attention; w k̂ to T; S to T for each tile, in two terms where states between chunks are split.
/// Cost of a token: 4 d (e + 8) + 64 (d + e + 8) operations; q, k, v, y and 36 bytes are moved once for 64 channels.
template <class T, int d, block::Products products = block::Products::exact>
struct LinearAttention {
  static_assert(sizeof(T) == 2 && d % 64 == 0);
  using Two = block::Pair<T>;
  using Args = typename Attention<T, 1, d, products>::Args;
  static constexpr int warps = 4, columns = 64, stages = 2, groups = 2, rows_of_warp = 8 * groups;
  static constexpr int threads = 32 * warps, blocks_per_multiprocessor = d > 64 || !block::products_overlap ? 2 : 3;
  static constexpr int tile_entries = stage_rows * d, value_entries = stage_rows * columns;
  static constexpr int entries = stages * (2 * tile_entries + value_entries) + d * (columns + 8) + 16 * 8;
  static constexpr int shared_bytes =
      entries * static_cast<int>(sizeof(T)) + stages * stage_rows * (3 * 8 + 3 * 4) + stage_rows * 4;
  static constexpr std::size_t parts = d / 64;                     // of the channels
  static constexpr int buffers = block::products_overlap ? 2 : 1;  // factors of products under way

  SYMPOW_HOST_DEVICE static int tiles(int e) { return (e + columns - 1) / columns; }
  /// x: the chunks of all sequences, times tiles of value channels. y: query heads.
  static Blocks blocks(const Sequences& sequences, const Heads& heads, int e) {
    return {std::int64_t{sequences.batch} * sequences.most_chunks() * tiles(e), heads.query};
  }

  SYMPOW_DEVICE static void run(const Args& x) {
    using namespace block;
    const int head = block_index(1), state_head = x.heads.state_of_query(head);
    const int key_head = x.heads.key_of_state(state_head);
    const int tile = block_index(0) % tiles(x.e), place = block_index(0) / tiles(x.e);
    const int chunk = place % x.sequences.most_chunks(), b = place / x.sequences.most_chunks();
    const Sequence sequence = x.sequences[b];
    const int left = sequence.length - chunk * x.sequences.chunk;
    const int length = left < x.sequences.chunk ? left : x.sequences.chunk;
    if (length <= 0) return;
    const std::int64_t begin = sequence.first + std::int64_t{chunk} * x.sequences.chunk;
    const std::int64_t slot = std::int64_t{state_head} * x.sequences.slots + sequence.slot + chunk;
    const std::int64_t token_slot = slot * x.sequences.chunk;

    Arena arena;
    const auto queries = arena.take<T>(stages * tile_entries), keys = arena.take<T>(stages * tile_entries);
    const auto values = arena.take<T>(stages * value_entries);
    const auto state = arena.take<T>(d * columns), normaliser = arena.take<T>(d * 8), ones = arena.take<T>(16 * 8);
    const auto exponents = arena.take<double>(stages * stage_rows), levels_of = arena.take<double>(stages * stage_rows),
               gates = arena.take<double>(stages * stage_rows);
    const auto inverses = arena.take<float>(stages * stage_rows), masses = arena.take<float>(stages * stage_rows);
    const auto resets = arena.take<std::int32_t>(stages * stage_rows);
    const auto weights = arena.take<float>(stage_rows);
    write_ones(ones, warp());

    // A warp's number is asked anew in every tile: what follows from it is not kept in registers.
    const auto bring = [&](int from, int w) {
      const TileCopy<T, d, stage_rows, warps> copy(w);
      const TileCopy<T, columns, stage_rows, warps> value_copy(w);
      const int ring = from / stage_rows % stages, to = ring * stage_rows;
      copy.bring(queries, ring * tile_entries, x.queries.data,
                 copy.source(x.queries.at(b, begin + from, head), x.queries.token), x.queries.token, 0, length - from,
                 true);
      copy.bring(keys, ring * tile_entries, x.keys.data,
                 copy.source(x.keys.at(b, begin + from, key_head), x.keys.token), x.keys.token, 0, length - from, true);
      value_copy.bring(values, ring * value_entries, x.values.data,
                       value_copy.source(x.values.at(b, begin + from, key_head) + tile * columns, x.values.token),
                       x.values.token, 0, length - from, value_copy.column + tile * columns < x.e);
      const auto numbers = [&](int warp, auto memory, auto array) {
        constexpr int at_once = 16 / static_cast<int>(sizeof(*array.data));
        if (w == warp)
          cp_async<16>(memory, lane() * at_once + to, array, lane() * at_once + (token_slot + from), 16,
                       lane() * at_once < stage_rows);
      };
      numbers(0, exponents, x.tokens.key);
      numbers(1, levels_of, x.tokens.level);
      numbers(2, gates, x.tokens.sum);
      numbers(3, inverses, x.tokens.inverse);
      numbers(3, masses, x.tokens.mass);
      numbers(3, resets, x.tokens.reset);
      cp_async_commit();
    };
    bring(0, warp());

    // The state before the tile: S and Z, which has the first of eight columns, in units of 2^⌈level⌉.
    Lanes<float> sums[parts][columns / 8 + 1][4];
    each(sums, [](Lanes<float>& s, int) { s = 0.f; });
    Lanes<double> enter = -infinity;
    Lanes<float> mass = 0.f;
    const int terms = x.prefixes.rest.data ? 2 : 1;
    const auto row_of = [](int w, int part, int half) {
      return lane() / 4 + (64 * part + rows_of_warp * w + 8 * half);
    };
    if (x.has_state) {
      const int w = warp();
      const TileCopy<T, columns, stage_rows, warps> value_copy(w);
      enter = load_one(x.chunks.enter, slot);
      mass = load_one(x.chunks.mass, slot);
      const Lanes<float> unit = two_to(load_one(x.chunks.shift, slot));
      const std::int64_t first = slot * d;
      SYMPOW_ROLL
      for (int term = 0; term < terms; ++term) {
        if (term > 0) barrier();  // the first was read
        SYMPOW_UNROLL
        for (int part = 0; part < static_cast<int>(parts); ++part)
          value_copy.bring(state, part * value_entries, term > 0 ? x.prefixes.rest : x.prefixes.sums,
                           value_copy.source((first + 64 * part) * x.e + tile * columns, x.e), x.e, 0, stage_rows,
                           value_copy.column + tile * columns < x.e);
        if (w < d / 32 && term == 0)
          cp_async<8>(normaliser, (lane() + 32 * w) * 8, x.prefixes.normaliser, (lane() + (first + 32 * w)) * 4, 8);
        cp_async_commit();
        cp_async_wait<0>();
        barrier();
        SYMPOW_UNROLL
        for (int part = 0; part < static_cast<int>(parts); ++part) SYMPOW_UNROLL
        for (int h = 0; h < 2; ++h) {
          SYMPOW_UNROLL
          for (int n = 0; n < columns / 8; ++n) {
            Lanes<Two> two[1];
            load(two, state.template as<Two>(), octet_place<columns>(row_of(w, part, h), n) / 2 + lane() % 4);
            sums[part][n][2 * h] += lower(two[0]) * unit;
            sums[part][n][2 * h + 1] += upper(two[0]) * unit;
          }
          Lanes<Two> of_row[2] = {Two{}, Two{}};
          load(of_row, normaliser.template as<Two>(), row_of(w, part, h) * 4, lane() % 4 == 0);
          sums[part][columns / 8][2 * h] = (lower(of_row[0]) + upper(of_row[0]) + lower(of_row[1])) * unit;
        }
      }
    }
    Lanes<double> level = enter;
    // T(2^-p S), or what that leaves of it, and Z in three terms of T.
    const auto leave_state = [&](int w, bool is_rest) {
      const Lanes<float> unit = two_to(-prefix_shift(mass));
      SYMPOW_UNROLL
      for (int part = 0; part < static_cast<int>(parts); ++part) SYMPOW_UNROLL
      for (int h = 0; h < 2; ++h) {
        SYMPOW_UNROLL
        for (int n = 0; n < columns / 8; ++n) {
          const Lanes<float> one = sums[part][n][2 * h] * unit, other = sums[part][n][2 * h + 1] * unit;
          Lanes<Two> two[1] = {pack<T>(one, other)};
          if (is_rest) two[0] = pack<T>(one - lower(two[0]), other - upper(two[0]));
          store(state.template as<Two>(), octet_place<columns>(row_of(w, part, h), n) / 2 + lane() % 4, two);
        }
        const Lanes<float> z = is_rest ? Lanes<float>(0.f) : sums[part][columns / 8][2 * h] * unit;
        const Lanes<float> mid = z - lower(pack<T>(z, z));
        Lanes<Two> terms_of_row[4] = {pack<T>(z, mid), Two{}, Two{}, Two{}};
        terms_of_row[1] = pack<T>(mid - upper(terms_of_row[0]), Lanes<float>(0.f));
        store(normaliser.template as<Two>(), row_of(w, part, h) * 4, terms_of_row, lane() % 4 == 0);
      }
    };
    leave_state(warp(), false);

    for (int from = 0;; from += stage_rows) {
      const int w = warp(), own = w * rows_of_warp, first_row = from + own;
      const int ring = from / stage_rows % stages, at = ring * stage_rows;
      const auto own_queries = queries.after(ring * tile_entries), own_keys = keys.after(ring * tile_entries);
      cp_async_wait<0>();
      publish<T>();
      barrier();  // the tile and its state have come, the one before was used
      if (from + stage_rows < length) bring(from + stage_rows, w);

      const auto norms = take_queries<d, groups>(own_queries, from, x.rotary, b, key_head, begin, length);
      const QueryTiles<T, d, 1, products, false> query_tiles(own_queries, own);
      const RowLevels<groups> levels(levels_of, resets, at - from, first_row, enter);
      Lanes<float> sum[1][columns / 8 + 1][4], read = 0.f;
      each(sum, [](Lanes<float>& s, int) { s = 0.f; });
      if (uniform(load_one(resets, at)) < from && uniform(level) != -infinity) {
        SYMPOW_ROLL
        for (int term = 0; term < terms; ++term) {
          if (term > 0) {
            barrier();
            leave_state(warp(), true);
            publish<T>();
            barrier();
          }
          Lanes<Two> left_factor[std::size_t{buffers}][1][4];
          SYMPOW_UNROLL_BY(buffers > 1 ? 8 : 1)
          for (int step = 0; step < d / 16; ++step) {
            group_wait<T, buffers - 1>();  // the product of two steps before is done with this factor
            query_tiles.take(left_factor[step % buffers][0], 0, step);
            group_mma<products>(sum, left_factor[step % buffers], state, step * 16, normaliser, step * 16);
            group_commit<T>();
          }
          group_finish<T>(sum);
        }
        const Lanes<double> relative = ceiling(level) - levels.anchor;
        const Lanes<float> unit = two_to(relative + prefix_shift(mass));
        if (levels.first_seen < from) read = mass * two_to(relative);
        each(sum, [&](Lanes<float>& s, int) { s *= unit; });  // beyond a reset of this tile add_keys makes them 0
      }
      SYMPOW_ROLL
      for (int part = 0; part < stage_rows; part += rows_of_warp) {
        if (from + part >= length) continue;
        add_keys<1, products, true>(sum, query_tiles, levels, first_row, from + part, own_keys, part, exponents,
                                    inverses, at + part, values, at + part, ones);
      }
      group_finish<T>(sum);

      // The weights of the tile's keys, and what is left of the state, after it.
      const int reset = uniform(load_one(resets, at + (stage_rows - 1)));
      const auto level_after = [&] {
        const Lanes<double> last = load_one(levels_of, at + (stage_rows - 1));
        return reset < 0 ? larger(enter, last) : last;
      };
      Lanes<double> u[1] = {0.};
      load(u, exponents, lane() + (at + own), lane() < rows_of_warp);
      const Lanes<bool> is_hidden = lane() + first_row < reset || u[0] == -infinity;
      const Lanes<float> weight[1] = {where(is_hidden, 0.f, two_to(u[0] - ceiling(level_after())))};
      store(weights, lane() + own, weight, lane() < rows_of_warp);
      barrier();  // rows are done with the state, weights are there

      write_rows<1>(x, {b, head, tile, begin, first_row, length}, sum, levels, norms, read, own_queries,
                    own * d / columns, [&](Lanes<int> row) { return load_one(gates, row + (at - from)); });
      if (from + stage_rows >= length) return;

      if (reset > from) {  // what is 0 · NaN would stay
        const Lanes<Two> zero[4] = {Two{}, Two{}, Two{}, Two{}};
        for (int row = 4 * w; row < reset - from; row += 4 * warps) {
          const Lanes<int> i = lane() / 8 + row, octet = lane() % 8;
          const Lanes<bool> before = i < reset - from;
          store(values.template as<Two>(), octet_place<columns>(i + at, octet) / 2, zero, before);
          SYMPOW_UNROLL
          for (int part = 0; part < static_cast<int>(parts); ++part)
            store(own_keys.template as<Two>(), octet_place<d>(i, octet + 8 * part) / 2, zero, before);
        }
        publish<T>();
        barrier();
      }
      const Lanes<double> next = level_after();
      const bool is_new = reset >= from;
      const Lanes<float> keep = where(is_new || level == -infinity, 0.f, two_to(ceiling(level) - ceiling(next)));
      const auto kept = [&](Lanes<float> s) { return where(keep == 0.f, Lanes<float>(0.f), s * keep); };
      each(sums, [&](Lanes<float>& s, int) { s = kept(s); });
      Lanes<float> added = 0.f;
      SYMPOW_UNROLL
      for (int h = 0; h < 2; ++h) {
        const Lanes<float> of_key = load_one(weights, lane() + 32 * h);
        added += where(of_key == 0.f, Lanes<float>(0.f), of_key * load_one(masses, lane() + (at + 32 * h)));
      }
      SYMPOW_UNROLL
      for (int distance = 16; distance > 0; distance /= 2) added += shuffle_xor(added, distance);
      mass = kept(mass) + added;
      level = next;
      Lanes<Two> left_factor[std::size_t{buffers}][parts][4];
      SYMPOW_UNROLL_BY(buffers > 1 ? 8 : 1)
      for (int step = 0; step < stage_rows / 16; ++step) {
        group_wait<T, buffers - 1>();
        Lanes<float> shrink[2][2], weigh[2][2];
        SYMPOW_UNROLL
        for (int h = 0; h < 2; ++h) {
          const Lanes<int> token = lane() % 4 * 2 + (16 * step + 8 * h);
          load(shrink[h], inverses, token + at);
          load(weigh[h], weights, token);
        }
        SYMPOW_UNROLL
        for (int part = 0; part < static_cast<int>(parts); ++part) {
          Lanes<Two> key[4];
          ldmatrix<true>(
              key, own_keys,
              octet_place<d>((lane() >> 4) * 8 + lane() % 8 + 16 * step, (lane() >> 3) % 2 + (8 * part + 2 * w)));
          SYMPOW_UNROLL
          for (int r = 0; r < 4; ++r)
            left_factor[step % buffers][part][r] = pack<T>(lower(key[r]) * shrink[r / 2][0] * weigh[r / 2][0],
                                                           upper(key[r]) * shrink[r / 2][1] * weigh[r / 2][1]);
        }
        group_mma<products>(sums, left_factor[step % buffers], values, at + step * 16, ones, 0);
        group_commit<T>();
      }
      group_finish<T>(sums);
      leave_state(w, false);
    }
  }
};

}  // namespace sympow::cuda
