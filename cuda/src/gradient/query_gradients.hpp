// Gradients of queries, on tensor cores: each row with the state and the keys that it saw.
#pragma once

#include "../layout/blocks.hpp"
#include "angle_rows.hpp"
#include "couplings.hpp"
#include "state_part.hpp"

namespace sympow::cuda {

/// dq_i = 2^{h_i + r_i - n_i} m_i (2^{M - r_i} Dφ(q̂_i)ᵀ S [dŷ_i; ℓ_i] + Σ_j P 2^{u_j - r_i} (q̂_i·k̂_j)^{P-1} c_ij
/// k̂_j) over the keys j ≤ i of the chunk that row i sees, and the state S before it; layout/gradients.hpp has the
/// rest. And what a block of rows gives to the gradients of gates, and of angles: `row`, `inside` and `through` of
/// FlowArrays, `rows` of AngleArrays.
///
/// A block of four warps has 64 queries of a chunk and head, 16 a warp. It walks through the state (state_part.hpp),
/// then blocks of 64 keys from old to new, and of each the values by tiles of channels (of floats 32 in place of 64),
/// through two stages. 2^{u_j - r_i} is at most 1.
///
/// Roundings: dx_ij = P 2^{u_j - r_i - s} (q̂·k̂)^{P-1} c_ij to T, and dq; sums in float. `has_angles`: what comes back
/// to angles, too; then also Σ_u rates_u J_u q̂_i and, in a block's own pairs, (path_i - path_j) dx_ij. Cost of a pair:
/// 4 d + 2 e operations, of a query of a state 2 R e, R rows.
template <class T, int P, int d, bool has_angles = false, block::Products products = block::Products::exact>
struct QueryGradients {
  static constexpr int warps = 4, threads = 32 * warps, rows = block_tokens, columns = tile_channels<T>;
  static constexpr int blocks_per_multiprocessor = 2;
  static constexpr int shared_bytes = static_cast<int>(sizeof(T)) * (3 * rows * d + 4 * rows * columns) +
                                      8 * (4 * rows + 4 * warps + warps * rows) +
                                      (has_angles ? AngleRows<T, d>::bytes : 0);
  template <int channels>
  using Tiles = QueryTiles<T, channels, 1, products, !has_angles>;

  struct Args {
    Rows<const T> queries, d_rows;  ///< q̂, dŷ
    Rows<const T> keys, values;     ///< k̂, v
    Rows<T> d_queries;
    TokenArrays tokens;
    RowArrays of_rows;
    FlowArrays flows;
    Sequences sequences;
    Heads heads;
    int e;
    StatesOfChunks<T> states = {};  ///< before chunks
    AngleArrays angles = {};
  };

  static Blocks blocks(const Sequences& sequences, const Heads& heads) {
    return {TokenBlock::count(sequences), heads.query};
  }

  SYMPOW_DEVICE static void run(const Args& x) {
    using namespace block;
    const TokenBlock of(x.sequences, block_index(0));
    if (of.top >= of.length) return;
    const int w = warp(), head = block_index(1), state_head = x.heads.state_of_query(head);
    const int key_head = x.heads.key_of_state(state_head), own = 16 * w, first_row = of.top + own;
    const std::int64_t slot = std::int64_t{head} * x.sequences.slots + of.slot, row_slot = slot * x.sequences.chunk;
    const std::int64_t token_slot = (std::int64_t{state_head} * x.sequences.slots + of.slot) * x.sequences.chunk;

    const Lanes<int> shift = load_one(x.of_rows.unit, slot);
    const int seen =
        uniform(load_one(x.tokens.reset, token_slot + of.top));  // no row of the block sees what lies before
    const int first_block = (seen > 0 ? seen : 0) / rows, last_block = of.top / rows;
    const std::int64_t state_slot = std::int64_t{state_head} * x.sequences.slots + of.slot;
    const double state_level = seen < 0 ? x.states.level(state_slot) : -infinity;
    const bool reads_state = state_level != -infinity;
    const int tiles = (x.e + columns - 1) / columns, end = (last_block - first_block + 1) * tiles;

    Arena arena;
    const auto queries = arena.take<T>(rows * d), keys = arena.take<T>(2 * rows * d);
    const auto values = arena.take<T>(4 * rows * columns), d_rows = values.after(2 * rows * columns);
    const auto exponents = arena.take<double>(2 * rows), totals = arena.take<double>(4 * warps);
    const UnitsOfRows units_of_rows(arena.take<double>(2 * rows), w);
    const auto inside = arena.take<double>(warps * rows),
               for_angles = arena.take<double>(has_angles ? AngleRows<T, d>::bytes / 8 : 0);

    const TileCopy<T, d, rows, warps> wide_copy(w);
    const TileCopy<T, columns, rows, warps> copy(w);
    const auto bring_d_rows = [&](int ring, int t) {
      copy.bring(d_rows, ring, x.d_rows.data,
                 copy.source(x.d_rows.at(of.b, of.begin + of.top, head) + t * columns, x.d_rows.token), x.d_rows.token,
                 0, of.length - of.top, copy.column + t * columns < x.e);
    };
    const auto bring = [&](int stage, const Step& of_stage) {
      const int n = first_block + of_stage.whole, t = of_stage.part, from = n * rows, ring = stage % 2 * rows * columns;
      const Lanes<bool> exists = copy.column + t * columns < x.e;
      if (t == 0) {
        wide_copy.bring(keys, n % 2 * rows * d, x.keys.data,
                        wide_copy.source(x.keys.at(of.b, of.begin + from, key_head), x.keys.token), x.keys.token,
                        seen - from, of.length - from, true);
        if (w == 0)
          cp_async<16>(exponents, lane() * 2 + n % 2 * rows, x.tokens.key, lane() * 2 + (token_slot + from), 16);
      }
      copy.bring(values, ring, x.values.data,
                 copy.source(x.values.at(of.b, of.begin + from, key_head) + t * columns, x.values.token),
                 x.values.token, seen - from, of.length - from, exists);
      if (stage == 0 || tiles > 1) bring_d_rows(ring, t);
    };
    wide_copy.bring(queries, 0, x.queries.data,
                    wide_copy.source(x.queries.at(of.b, of.begin + of.top, head), x.queries.token), x.queries.token, 0,
                    of.length - of.top, true);

    const bool has_flows = x.flows.row.data;
    const RowLevels<2> levels(x.tokens, token_slot, first_row, Lanes<double>(state_level));
    const auto row_of = [&](int g) { return Lanes<std::int64_t>(lane() / 4 + (row_slot + first_row + 8 * g)); };
    SYMPOW_UNROLL
    for (int g = 0; g < 2; ++g) {  // h_i + r_i and m_i
      const TwoFloats& above = levels.above[g];
      units_of_rows.put(g, load_one(x.of_rows.exponent, row_of(g)) + above.high + (above.low + levels.anchor),
                        load_one(x.of_rows.factor, row_of(g)));
    }  // read after a barrier of the block
    const auto unit = [&](int g) { return units_of_rows.of(g, 0.); };
    const Lanes<float> offset[2] = {load_one(x.of_rows.offset, row_of(0)), load_one(x.of_rows.offset, row_of(1))};
    Lanes<float> before[2] = {0.f, 0.f};  // Σ_j t_ij of blocks before this one
    const Lanes<float> shrink = two_to(-shift) * static_cast<float>(P);
    Lanes<float> sum[std::size_t{d / 8}][4];
    SYMPOW_UNROLL
    for (int n = 0; n < d / 8; ++n) SYMPOW_UNROLL
    for (int r = 0; r < 4; ++r) sum[n][r] = 0.f;
    const auto add_total = [&](int n) {  // of `before`, for the keys before block n
      Lanes<double> total = 0.;
      SYMPOW_UNROLL
      for (int g = 0; g < 2; ++g) total += coupling_of(sum_of_row(before[g]), unit(g));
      const Lanes<double> of_warp[1] = {sum_of_column(total)};
      store(totals, lane() + (n % 2 * warps + w), of_warp, lane() == 0);
    };
    const Rotary& rotary = x.angles.rotary;
    const auto angles = [&] { return AngleRows<T, d>(rotary, queries, own, for_angles, w); };
    if constexpr (has_angles) angles().clear();
    const auto anew = [&] { return TokenBlock(x.sequences, block_index(0)); };  // some registers less than kept
    const auto path = [&](Lanes<int> i) { return path_of(rotary, anew(), key_head, i); };
    const auto angle_unit = [&](int g, Lanes<int> t) { return units_of_rows.of(g, convert<double>(shift + t)); };
    const auto row_path = [&](int g) { return path(smaller(lane() / 4 + (first_row + 8 * g), of.length - 1)); };
    const auto add_angles = [&](int n) {  // of `sum`, over the keys before block n: through it, or up to the rows
      const Lanes<double> before_block = path(n * rows - 1), units[2] = {angle_unit(0, 0), angle_unit(1, 0)};
      const auto behind = [&](int g) { return n < last_block ? path(n * rows + rows - 1) : row_path(g); };
      const Lanes<double> turned[2] = {behind(0) - before_block, behind(1) - before_block};
      Lanes<double> total[2];
      angles().add(total, sum, units, turned);
      if (n < last_block) {
        const Lanes<double> of_warp[1] = {sum_of_column(total[0] + total[1])};
        store(totals, lane() + (2 * warps + n % 2 * warps + w), of_warp, lane() == 0);
      } else {
        SYMPOW_UNROLL
        for (int g = 0; g < 2; ++g) {
          const Lanes<double> one[1] = {total[g]};
          store(x.angles.flows.row, row_of(g), one, lane() % 4 == 0);
        }
      }
    };
    if (reads_state) {
      StatePart<T, P, d> part(queries, own, keys.template as<float>(), w);
      Lanes<float> none[std::size_t{columns / 8}][4], scale[2];
      SYMPOW_UNROLL
      for (int g = 0; g < 2; ++g) {
        const TwoFloats& above = levels.above[g];
        const Lanes<double> to = x.states.unit(state_slot, state_level) - above.high - (above.low + levels.anchor);
        scale[g] = where(levels.seen[g] < 0, two_to(to), Lanes<float>(0.f));
      }
      const Lanes<float> of_sums[2] = {scale[0] * two_to(-shift), scale[1] * two_to(-shift)};
      part.begin(of_sums);
      read_state<false, products>(part, none, x.states.prefixes, state_slot, x.e, 0, true, false, offset, d_rows,
                                  values, exponents.template as<float>(), copy, bring_d_rows, w);
      SYMPOW_UNROLL
      for (int g = 0; g < 2; ++g) before[g] = where(scale[g] == 0.f, Lanes<float>(0.f), part.coupling[g] * scale[g]);
      part.sums.take(sum);
      if (has_flows && last_block > 0) add_total(0);
      barrier();  // the sums make room
    }
    Step of_stage{tiles};
    bring(0, of_stage);
    cp_async_commit();
    const auto block_slot = [&] { return slot * (x.sequences.chunk / rows) + last_block; };
    const auto through = [&](int n) { return block_slot() * (x.sequences.chunk / rows) + n; };
    if (!reads_state)  // keys of these blocks are not seen, or there are none before
      for (int n = 32 * w; n <= first_block && n < last_block; n += threads) {
        const Lanes<double> zero[1] = {0.};
        const Lanes<bool> is_left = lane() + n < last_block;
        if (has_flows) store(x.flows.through, lane() + through(n), zero, lane() + n <= first_block && is_left);
        if constexpr (has_angles)
          store(x.angles.flows.through, lane() + through(n), zero, lane() + n < first_block && is_left);
      }

    const OctetSums<d> waiting(values.template as<float>(), w);  // sums, when nobody reads values any more
    PairTile dx, c;
    for (int stage = 0; stage < end; ++stage, of_stage = of_stage.next()) {
      const int n = first_block + of_stage.whole, from = n * rows, ring = stage % 2 * rows * columns;
      const bool begins = of_stage.part == 0;
      cp_async_wait<0>();
      barrier();
      if (stage + 1 < end) bring(stage + 1, of_stage.next());
      cp_async_commit();
      if (has_flows && begins && (n > first_block || reads_state) && n < last_block && w == 0)
        store_total(x.flows.through, through(n), totals, n % 2 * warps);
      if constexpr (has_angles) {
        if (begins && n > first_block && w == 0)
          store_total(x.angles.flows.through, through(n - 1), totals, (2 + (n - 1) % 2) * warps);
        if (begins) add_angles(n);
      }
      if (begins) clear(c);
      const Tiles<columns> d_row_tiles(d_rows.after(tiles > 1 ? ring : 0), own);
      d_row_tiles.add_scores(c, values.after(ring), 0);
      if (!of_stage.is_last()) continue;

      const Tiles<d> query_tiles(queries, own);
      query_tiles.scores(dx, keys.after(n % 2 * rows * d), 0);
      const ColumnExponents u(exponents, n % 2 * rows, levels.anchor);
      SYMPOW_UNROLL
      for (int o = 0; o < 8; ++o) SYMPOW_UNROLL
      for (int h = 0; h < 2; ++h) {
        const Lanes<int> j = lane() % 4 * 2 + (8 * o + h + from);
        const TwoFloats column = u.of(o, h);
        SYMPOW_UNROLL
        for (int g = 0; g < 2; ++g) {
          Lanes<float>&s = dx[0][o][2 * g + h], &t = c[0][o][2 * g + h];
          const Lanes<bool> is_seen = j <= lane() / 4 + (first_row + 8 * g) && j >= levels.seen[g];
          const Lanes<float> slope = power<P - 1>(s) * weight_of(column, levels.above[g]) * (t + offset[g]);
          t = where(is_seen, slope * s, Lanes<float>(0.f));
          s = where(is_seen, slope * shrink, Lanes<float>(0.f));
        }
      }
      if (has_flows && n < last_block) {
        SYMPOW_UNROLL
        for (int o = 0; o < 8; ++o) SYMPOW_UNROLL
        for (int g = 0; g < 2; ++g) before[g] += c[0][o][2 * g] + c[0][o][2 * g + 1];
        add_total(n + 1);
      } else if (has_flows) {
        const Lanes<double> units[2] = {unit(0), unit(1)};
        write_inside(inside, w, c, units);
      }
      add_product<products, d>(sum, dx, keys.after(n % 2 * rows * d));
    }

    if (has_flows) {
      SYMPOW_UNROLL
      for (int g = 0; g < 2; ++g) {
        const Lanes<double> total[1] = {coupling_of(sum_of_row(before[g]), unit(g))};
        store(x.flows.row, row_of(g), total, lane() % 4 == 0);
      }
      store_inside(x.flows.inside, row_slot + of.top, inside, w);
    }
    const bool turns = has_angles || rotary.rates.data;
    if (turns) {
      barrier();  // nobody reads values any more, or the sums of gates
      waiting.put(sum);
    }
    if constexpr (has_angles) {
      const auto own_keys = keys.after(last_block % 2 * rows * d);
      const Lanes<double> first_path = path(of.top - 1);
      Lanes<double> paths[2];
      SYMPOW_UNROLL
      for (int h = 0; h < 2; ++h) paths[h] = path(smaller(lane() + (of.top + 32 * h), of.length - 1)) - first_path;
      Lanes<double> longest = larger(absolute(paths[0]), absolute(paths[1]));
      SYMPOW_UNROLL
      for (int mask = 1; mask < 32; mask *= 2) longest = larger(longest, shuffle_xor(longest, mask));
      const Lanes<int> t = smaller(exponent_above(convert<float>(longest)), 125) + 1;
      const ColumnExponents columns_of(paths);
      SYMPOW_UNROLL
      for (int g = 0; g < 2; ++g) {
        const TwoFloats row = TwoFloats::of(row_path(g) - first_path);
        SYMPOW_UNROLL
        for (int o = 0; o < 8; ++o) SYMPOW_UNROLL
        for (int h = 0; h < 2; ++h) {
          const TwoFloats column = columns_of.of(o, h);
          const Lanes<float> between = (row.high - column.high) + (row.low - column.low);
          c[0][o][2 * g + h] = dx[0][o][2 * g + h] * (between * two_to(-t));
        }
      }
      Lanes<double> units[2] = {angle_unit(0, t), angle_unit(1, t)};
      angles().template add_pairs<products>(c, own_keys, units);
      const Lanes<int> size = angles().turn_rows();
      const Tiles<d> turned(queries, own);
      turned.scores(c, own_keys, 0);
      SYMPOW_UNROLL
      for (int o = 0; o < 8; ++o) SYMPOW_UNROLL
      for (int r = 0; r < 4; ++r) c[0][o][r] *= dx[0][o][r];
      units[0] = angle_unit(0, size), units[1] = angle_unit(1, size);
      write_inside(inside, w, c, units);
      store_inside(x.angles.flows.inside, row_slot + of.top, inside, w);
      angles().store_rates(x.angles.rows, block_slot() * (d / 2), w);
    }
    if (turns) {
      turn_back(waiting, rotary, anew(), key_head, first_row);
      waiting.take(sum);
    }
    Lanes<float> factors[2];
    Lanes<double> row_exponents[2];
    SYMPOW_UNROLL
    for (int g = 0; g < 2; ++g) {
      const Lanes<int> size = -ceiling_log2(load_one(x.of_rows.inverse, row_of(g)));
      row_exponents[g] = units_of_rows.exponent(g) + convert<double>(shift - size);
      factors[g] = units_of_rows.factor(g);
    }
    store_sums<d>(x.d_queries, x.d_queries.at(of.b, of.begin + first_row, head), sum, factors, row_exponents, queries,
                  own, of.length - first_row, d);
  }
};

}  // namespace sympow::cuda
