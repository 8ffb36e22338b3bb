// What the tokens of a chunk add to a state, on tensor cores: ΔS = Σ_t w_t φ(k̂_t) v_tᵀ, ΔZ = Σ_t w_t φ(k̂_t), w_t the
// weight to the chunk's end. Or what its rows add to the adjoint of the state before it: q̂ in the place of keys,
// dŷ in that of values, and ΔZ = Σ_t w_t ℓ_t φ(q̂_t) (see gradients.hpp). The monomials φ are in no memory: they are
// products of two rows in registers.
#pragma once

#include <type_traits>

#include "../layout/blocks.hpp"
#include "../layout/chunks.hpp"
#include "../layout/tile_copy.hpp"
#include "../layout/tiles.hpp"
#include "units.hpp"

namespace sympow::cuda {

/// A block of 8 warps has 64 value channels of a head and chunk, and takes its tokens 64 or 32 at a time: copies of the
/// next two stages are on their way while keys of the next one are turned into rows (TokenRows) and this one is
/// multiplied. A warp has one unit of monomials (Units): heads and tails by ldmatrix, which reads any 16 rows, their
/// product, times the values; (64 + 8) channels stay in registers. The 8 more channels are 1, 0, …, 0 and give ΔZ, or
/// ℓ in two terms of T.
/// Where the last block of a chunk has fewer units than warps, these share the tokens of a unit and add their sums in
/// order.
///
/// Roundings: w k̂, each product of rows, to T; sums in float.
/// Cost: 2 D (e + 8 ⌈e / 64⌉) floating-point operations a token; D (e + 1) floats stored a chunk.
template <class T, int P, int d, block::Products products = block::Products::exact>
struct Update {
  using Two = block::Pair<T>;
  static constexpr int D = monomial_count(P, d);
  static constexpr int warps = 8, columns = 64, tiles_of_columns = columns / 8 + 1;
  static constexpr bool wide = sizeof(T) > 2;  // such entries leave room for less
  static constexpr int stage_tokens = (P == 4 && d > 16) || wide ? 32 : 64, slabs = stage_tokens / 16, stages = 3;
  using TokenRows = cuda::TokenRows<T, P, d, stage_tokens>;
  static constexpr int row_buffers = P >= 3 ? 1 : 2;
  /// Of 16 monomials: a unit has at most four, of floats two, fewer where four warps have too few units.
  static constexpr int all_fragments = (D + 15) / 16, most_fragments = wide ? 2 : 4,
                       fragments =
                           P == 2 || all_fragments >= 4 * most_fragments ? most_fragments : (all_fragments + 3) / 4;
  using Units = cuda::Units<TokenRows, P, d, fragments>;
  static constexpr int at_once = wide ? fragments : 1;  // in one product: parts of values are made once for all
  static constexpr int under_way = wide ? 0 : 1;        // products, when the next fragment comes
  static constexpr bool overlaps = !wide && block::products_overlap;
  static constexpr int rows_ahead = overlaps ? 2 : wide ? 0 : 1;  // of fragments
  static constexpr int buffers = rows_ahead + 1;
  static constexpr int tail_fragments = Units::shares_tails ? 1 : fragments;
  static constexpr int tail_registers = Units::shares_tails ? 2 : 4;  // of a slab: eight rows, or sixteen
  static constexpr int units = Units::count, groups = (units + warps - 1) / warps;
  /// Units of the last block; the four warps of a group multiply by the same tokens.
  static constexpr int last_units = units % warps == 0 || units % warps > 4 ? warps : 4;

  static constexpr int size = sizeof(T), stage_bytes = stage_tokens * (size * (d + columns) + 3 * 4);
  static constexpr int exchange_bytes = last_units == warps ? 0 : last_units * fragments * tiles_of_columns * 4 * 128;
  static constexpr int ones_of_stage = stage_tokens * 64;  // an octet in 64 entries of each token
  static constexpr int working_bytes = stages * stage_bytes + row_buffers * (TokenRows::entries + ones_of_stage) * size;
  static constexpr int threads = 32 * warps, blocks_per_multiprocessor = P == 1 && d <= 64 && !wide ? 2 : 1;
  static constexpr int shared_bytes = working_bytes > exchange_bytes ? working_bytes : exchange_bytes;

  struct Args {
    Rows<const T> keys, values;
    TokenArrays tokens;
    Sequences sequences;
    Heads heads;
    ChunkSums own;
    int e;
    RowsOfState rows = {};  ///< its arrays null: these are keys
  };

  SYMPOW_HOST_DEVICE static int tiles(int e) { return (e + columns - 1) / columns; }
  /// x: the chunks of all sequences, times groups of units, times tiles of value channels. y: state heads.
  static Blocks blocks(const Sequences& sequences, const Heads& heads, int e) {
    return {std::int64_t{sequences.batch} * sequences.most_chunks() * groups * tiles(e), heads.state};
  }

  SYMPOW_DEVICE static void run(const Args& x) {
    using namespace block;
    const int w = warp(), head = block_index(1), tile = block_index(0) % tiles(x.e);
    const int group = block_index(0) / tiles(x.e) % groups, place = block_index(0) / tiles(x.e) / groups;
    const int b = place / x.sequences.most_chunks(), chunk = place % x.sequences.most_chunks();
    const Sequence sequence = x.sequences[b];
    if (chunk >= sequence.chunks) return;
    const int left = sequence.length - chunk * x.sequences.chunk;
    const int length = left < x.sequences.chunk ? left : x.sequences.chunk;
    const std::int64_t begin = sequence.first + std::int64_t{chunk} * x.sequences.chunk;
    const std::int64_t own_slot = sequence.slot + chunk, slot = std::int64_t{head} * x.sequences.slots + own_slot;

    // What lies before a gate of 0 or beyond the end counts as 0, and is not looked at.
    const bool is_adjoint = x.rows.ends.data;
    const int seen = is_adjoint ? 0 : uniform(load_one(x.tokens.reset, slot * x.sequences.chunk + (length - 1)));
    const int end = is_adjoint ? uniform(load_one(x.rows.ends, slot)) : length;
    const auto offset_unit = [&](int sign) {  // asked anew: a register less than kept
      return is_adjoint ? two_to(load_one(x.rows.exponents, slot) * sign) : Lanes<float>(1.f);
    };
    const int first = (seen > 0 ? seen : 0) / stage_tokens * stage_tokens;
    const int stages_of_head = (end - first + stage_tokens - 1) / stage_tokens;
    // A state has the tokens of its key head, or of several, one after the other.
    const int heads_of_state = x.heads.key > x.heads.state ? x.heads.key / x.heads.state : 1;
    const int end_stage = heads_of_state * stages_of_head;

    Arena arena;
    const auto keys = arena.take<T>(stages * stage_tokens * d), values = arena.take<T>(stages * stage_tokens * columns);
    const auto ones = arena.take<T>(row_buffers * ones_of_stage);
    const auto inverse = arena.take<float>(stages * stage_tokens), weight = arena.take<float>(stages * stage_tokens);
    const auto offsets = arena.take<float>(stages * stage_tokens);
    const auto rows = arena.take<T>(row_buffers * TokenRows::entries);
    for (int n = 0; n < row_buffers * stage_tokens / 16; ++n) write_ones<64>(ones.after(n * 16 * 64), w);
    if (is_adjoint && w < stages * stage_tokens / 32) {  // its rows are in units
      const Lanes<float> one[1] = {1.f};
      store(inverse, lane() + 32 * w, one);
    }

    const TileCopy<T, d, stage_tokens, warps> key_copy(w);
    const TileCopy<T, columns, stage_tokens, warps> value_copy(w);
    Lanes<std::int64_t> key_at = std::int64_t{0}, value_at = std::int64_t{0}, weight_at = std::int64_t{0};
    int token_head = heads_of_state > 1 ? head * heads_of_state : head, next = first;  // of the stage to be brought
    const int own_place = x.sequences.place(b);                                        // of keys and values
    const auto enter_head = [&] {
      const int key_head = heads_of_state > 1 ? token_head : x.heads.key_of_state(head);
      key_at = key_copy.source(x.keys.at(own_place, begin + first, key_head), x.keys.token);
      value_at = value_copy.source(x.values.at(own_place, begin + first, key_head) + tile * columns, x.values.token);
      weight_at = lane() * 4 + ((std::int64_t{token_head} * x.sequences.slots + own_slot) * x.sequences.chunk + first);
    };
    enter_head();
    const Lanes<bool> value_exists = value_copy.column + tile * columns < x.e;
    const auto bring = [&](int stage) {  // one after the other
      if (stage < end_stage) {
        const int to = stage % stages * stage_tokens;
        if (next >= end) {  // the next head begins
          ++token_head;
          next = first;
          enter_head();
        }
        key_copy.bring(keys, to * d, x.keys.data, key_at, x.keys.token, seen - next, end - next, true);
        value_copy.bring(values, to * columns, x.values.data, value_at, x.values.token, seen - next, end - next,
                         value_exists);
        if (w == 0 && !is_adjoint)
          cp_async<16>(inverse, lane() * 4 + to, x.tokens.inverse, weight_at, 16, lane() * 4 < stage_tokens);
        if (w == 1) cp_async<16>(weight, lane() * 4 + to, x.tokens.to_end, weight_at, 16, lane() * 4 < stage_tokens);
        if (w == 2 && is_adjoint)
          cp_async<16>(offsets, lane() * 4 + to, x.rows.offsets, weight_at, 16, lane() * 4 < stage_tokens);
        key_at += stage_tokens * x.keys.token;
        value_at += stage_tokens * x.values.token;
        weight_at += std::int64_t{stage_tokens};
        next += stage_tokens;
      }
      cp_async_commit();
    };
    const auto rows_of = [&](int stage) { return TokenRows{rows.after(stage % row_buffers * TokenRows::entries)}; };
    const auto turn = [&](int stage) {
      rows_of(stage).template turn<warps>(keys, inverse, weight, stage % stages * stage_tokens, w);
      if (is_adjoint && w < stage_tokens / 32) {
        const Lanes<int> token = lane() + 32 * w;
        const Lanes<bool> counts = token + (first + stage % stages_of_head * stage_tokens) < end;
        const Lanes<float> own = load_one(offsets, token + stage % stages * stage_tokens) * offset_unit(-1);
        const Lanes<float> offset = where(counts, own, Lanes<float>(0.f));
        const Lanes<Two> terms[1] = {pack<T>(offset, offset - lower(pack<T>(offset, offset)))};
        store(ones.template as<Two>(), (octet_place<64>(token, 0) + stage % row_buffers * ones_of_stage) / 2, terms);
      }
    };

    const int sharing = group == groups - 1 ? last_units : warps;  // units of this block
    const int part = w / sharing, parts = warps / sharing;
    const Units unit(group * warps + w % sharing);
    // Where the lane's 16 bytes of heads and tails begin, tokens 0 … 15.
    Lanes<int> head_at[std::size_t{fragments}], tail_at[std::size_t{tail_fragments}];
    SYMPOW_UNROLL
    for (int f = 0; f < fragments; ++f) {
      const auto rows_at = unit.places(lane() % 16 + 16 * f);
      head_at[f] = TokenRows::place(rows_at.head, lane() / 16);
      if (f < tail_fragments)
        tail_at[f] = TokenRows::place(rows_at.tail, Units::shares_tails ? lane() / 8 : lane() / 16);
    }
    Lanes<float> sum[std::size_t{fragments / at_once}][std::size_t{at_once}][tiles_of_columns][4];
    SYMPOW_UNROLL
    for (auto& product : sum) SYMPOW_UNROLL
    for (auto& fragment : product) SYMPOW_UNROLL
    for (auto& tile_of_sums : fragment) SYMPOW_UNROLL
    for (auto& s : tile_of_sums) s = 0.f;

    // Tokens of `count` slabs from one on: one fragment of a slab after the other, rows of two fragments ahead.
    const auto multiply_slabs = [&](int stage, int from, auto count, const auto& meanwhile) {
      constexpr int all = fragments * decltype(count)::value;
      const auto memory = rows_of(stage).memory;
      Lanes<Two> heads[std::size_t{buffers}][4], tails[std::size_t{buffers}][std::size_t{tail_registers}],
          phi[std::size_t{under_way + 1}][std::size_t{at_once}][4];
      const auto tails_of = [](int n) { return (Units::shares_tails ? n / fragments : n) % buffers; };
      const auto load_rows = [&](int n) {
        const int f = n % fragments, slab = from + n / fragments;
        ldmatrix<false>(heads[n % buffers], memory, head_at[f] ^ (slab * 16));
        if (P > 1 && f < tail_fragments) ldmatrix<false>(tails[tails_of(n)], memory, tail_at[f] ^ (slab * 16));
      };
      SYMPOW_UNROLL
      for (int n = 0; n < rows_ahead && n < all; ++n) load_rows(n);
      SYMPOW_UNROLL
      for (int n = 0; n < all; ++n) {
        if (n + rows_ahead < all) load_rows(n + rows_ahead);
        const int f = n % fragments, position = f % at_once, product = n / at_once % (under_way + 1);
        group_wait<T, under_way>();
        SYMPOW_UNROLL
        for (int r = 0; r < 4; ++r)
          phi[product][position][r] =
              P == 1 ? heads[n % buffers][r]
                     : multiply(heads[n % buffers][r], tails[tails_of(n)][Units::shares_tails ? r / 2 : r]);
        if (position + 1 < at_once) continue;
        group_mma<products, 64>(sum[f / at_once], phi[product], values,
                                stage % stages * stage_tokens + (from + n / fragments) * 16, ones,
                                stage % row_buffers * stage_tokens + (from + n / fragments) * 16);
        group_commit<T>();
        if (n < at_once) meanwhile();
      }
      group_finish<T>(sum);
    };
    const auto multiply_stage = [&](int stage, const auto& meanwhile) {
      if constexpr (!overlaps) {  // a slab at a time takes fewer registers
        meanwhile();
        SYMPOW_ROLL
        for (int slab = slabs / parts * part; slab < slabs / parts * (part + 1); ++slab)
          multiply_slabs(stage, slab, std::integral_constant<int, 1>(), [] {});
      } else if (parts == 1) {
        multiply_slabs(stage, 0, std::integral_constant<int, slabs>(), meanwhile);
      } else {
        multiply_slabs(stage, part * (slabs / 2), std::integral_constant<int, slabs / 2>(), meanwhile);
      }
    };

    bring(0);
    bring(1);
    if constexpr (row_buffers == 2) {
      cp_async_wait<1>();
      barrier();
      if (end_stage > 0) turn(0);
    }
    for (int stage = 0; stage < end_stage; ++stage) {
      cp_async_wait<2 - row_buffers>();
      publish<T>();
      barrier();  // copies have come, the rows of this stage are made, the stage before was used
      const auto bring_next = [&] { bring(stage + 2); };
      if constexpr (row_buffers == 2) {
        // Half of the warps make rows before they multiply, half after: so tensor cores always have work.
        const bool early = w < warps / 2, more = stage + 1 < end_stage;
        if (early && more) turn(stage + 1);
        multiply_stage(stage, bring_next);
        if (!early && more) turn(stage + 1);
      } else {
        bring_next();
        turn(stage);
        if (is_adjoint) publish<T>();
        barrier();
        rows_of(stage).pair(w, warps);
        barrier();
        multiply_stage(stage, [] {});
      }
    }

    const auto sums_of_warps = Arena().take<float>(exchange_bytes / 4);
    for (int p = 1; p < parts; ++p) {
      barrier();
      const auto exchange = [&](auto each) {
        SYMPOW_UNROLL
        for (int f = 0; f < fragments; ++f) SYMPOW_UNROLL
        for (int n = 0; n < tiles_of_columns; ++n)
          each(sum[f / at_once][f % at_once][n],
               lane() * 4 + ((w % sharing * fragments + f) * tiles_of_columns + n) * 128);
      };
      if (part == p) exchange([&](auto& own, Lanes<int> at) { store(sums_of_warps, at, own); });
      barrier();
      if (part == 0)
        exchange([&](auto& own, Lanes<int> at) {
          Lanes<float> other[4];
          load(other, sums_of_warps, at);
          SYMPOW_UNROLL
          for (int r = 0; r < 4; ++r) own[r] += other[r];
        });
    }
    if (part > 0) return;

    SYMPOW_UNROLL
    for (int f = 0; f < fragments; ++f) SYMPOW_UNROLL
    for (int h = 0; h < 2; ++h) {
      const Lanes<int> m = unit.monomial(lane() / 4 + (16 * f + 8 * h)), column = lane() % 4 * 2;
      const Lanes<std::int64_t> entry = m + slot * D;
      const auto& own = sum[f / at_once][f % at_once];
      SYMPOW_UNROLL
      for (int n = 0; n < columns / 8; ++n) {
        const Lanes<float> two[2] = {own[n][2 * h], own[n][2 * h + 1]};
        const Lanes<int> c = column + (tile * columns + 8 * n);
        store(x.own.sums, entry * x.e + c, two, m >= 0 && c < x.e);
      }
      const Lanes<float> normaliser[1] = {(own[columns / 8][2 * h] + own[columns / 8][2 * h + 1]) * offset_unit(1)};
      store(x.own.normaliser, entry, normaliser, m >= 0 && column == 0 && tile == 0);
    }
  }
};

}  // namespace sympow::cuda
