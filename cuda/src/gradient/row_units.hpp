// Queries and dY as gradients multiply them, and the exponents of rows.
#pragma once

#include "../layout/blocks.hpp"
#include "../layout/gradients.hpp"
#include "unit_rows.hpp"

namespace sympow::cuda {

/// Writes q̂, turned where there is rotary, and dŷ, rounded to T, and `exponent`, `factor`, `offset`, `inverse`, `mass`
/// of RowArrays (gradients.hpp), for all 64 tokens of blocks in use. Of rows that nothing comes from dŷ and ℓ are 0;
/// where q or dy is not finite, h is NaN.
///
/// A block of four warps has 64 tokens of a query head. Of a token d + 2 e channels are read, d + e and 24 bytes
/// written.
template <class T>
struct RowUnits {
  static constexpr int warps = 4, threads = 32 * warps, blocks_per_multiprocessor = 8, shared_bytes = 0;

  struct Args {
    Rows<const T> queries, rows, d_rows;  ///< q, y, dy; y of normalised rows only
    Rows<const float> factors;            ///< of normalised rows: 1 / normaliser as Attention writes it
    TokenArrays tokens;
    Global<const double> enter;      ///< L of ChunkArrays; null: no state is read
    Rows<T> query_units, row_units;  ///< q̂, dŷ
    RowArrays of_rows;
    Sequences sequences;
    Heads heads;
    int d, e, power;
    bool normalised;
    double scale_exponent;  ///< of rows that are not normalised: that of |scale|^P; its sign, or 0
    float scale_sign;
    Rotary rotary = {};
  };

  static Blocks blocks(const Sequences& sequences, const Heads& heads) {
    return {TokenBlock::count(sequences), heads.query};
  }

  SYMPOW_DEVICE static void run(const Args& x) {
    using namespace block;
    const TokenBlock of(x.sequences, block_index(0));
    if (of.top >= of.length) return;
    const int head = block_index(1), state_head = x.heads.state_of_query(head);
    const std::int64_t chunk = x.sequences.chunk,
                       token_slot = (std::int64_t{state_head} * x.sequences.slots + of.slot) * chunk,
                       row_slot = (std::int64_t{head} * x.sequences.slots + of.slot) * chunk;
    Lanes<double> state = -infinity;
    if (x.enter.data) state = load_one(x.enter, std::int64_t{state_head} * x.sequences.slots + of.slot);
    const OctetLanes lanes(x.d > x.e ? x.d : x.e);
    constexpr int rows = block_tokens / warps;
    const int first = of.top + warp() * rows;
    for (int from = 0; from < rows; from += lanes.rows) {
      const Lanes<int> i = lanes.row + (first + from);
      const Lanes<bool> exists = i < of.length;
      const Lanes<std::int64_t> t = i + of.begin;
      const Lanes<bool> has_query = exists && lanes.octet * 8 < x.d, has_row = exists && lanes.octet * 8 < x.e;

      OctetOfRow query(x.queries.data, x.queries.at(of.b, t, head) + lanes.octet * 8, has_query);
      Lanes<float> largest_query = lanes.reduce(query.largest(), most);
      Lanes<int> n = exponent_above(largest_query);
      if (x.rotary.rates.data) {  // in units, so that nothing overflows
        query.template scale<T>(two_to(-n));
        x.rotary.turn(query.entries, x.d, lanes.octet, x.d / 16, of.b, t, x.heads.key_of_state(state_head), has_query);
        query.template scale<T>(1.f);
        largest_query = where(largest_query <= largest_float, lanes.reduce(query.largest(), most), largest_query);
        const Lanes<int> more = larger(smaller(exponent_above(largest_query), 126 - n), -126 - n);
        query.template scale<T>(two_to(-more));
        n = n + more;
      } else {
        query.template scale<T>(two_to(-n));
      }
      if (x.of_rows.mass.data) {
        Lanes<float> square = 0.f, mass[1] = {1.f};
        SYMPOW_UNROLL
        for (int c = 0; c < 8; ++c) square += query.entries[c] * query.entries[c];
        square = lanes.reduce(square, plus);
        for (int p = 1; p < x.power; p += 2) mass[0] *= square;
        if (x.power % 2 == 1) mass[0] *= sqrt(square);
        store(x.of_rows.mass, i + row_slot, mass, lanes.octet == 0);
      }
      query.store_scaled(x.query_units.data, x.query_units.at(of.b, t, head) + lanes.octet * 8, 1.f, has_query);

      OctetOfRow d_row(x.d_rows.data, x.d_rows.at(of.b, t, head) + lanes.octet * 8, has_row);
      const Lanes<float> largest = lanes.reduce(d_row.largest(), most);
      const Lanes<int> a = exponent_above(largest);
      Lanes<float> factor[1] = {1.f}, offset = 0.f;
      Lanes<int> shift = 0;
      Lanes<double> level[1];
      load(level, x.tokens.level, i + token_slot);
      if (x.enter.data)
        level[0] = where(load_one(x.tokens.reset, i + token_slot) < 0, larger(state, level[0]), level[0]);
      if (x.normalised) {
        const OctetOfRow row(x.rows.data, x.rows.at(of.b, t, head) + lanes.octet * 8, has_row);
        SYMPOW_UNROLL
        for (int c = 0; c < 8; ++c) offset += row.entries[c] * (d_row.entries[c] * two_to(-a));
        offset = -lanes.reduce(offset, plus);
        load(factor, x.factors.data, x.factors.at(of.b, t, head), exists);
        shift = larger(exponent_above(factor[0]), Lanes<int>(-125));
        factor[0] *= two_to(-shift);
        level[0] = -level[0];
      } else {
        Lanes<double> sum[1];
        load(sum, x.tokens.sum, i + token_slot);
        level[0] = where(level[0] == level[0], sum[0] + convert<double>(n * x.power) + x.scale_exponent,
                         level[0]);  // NaN is seen
        factor[0] = x.scale_sign;
      }
      const Lanes<bool> finite = largest_query <= largest_float && largest <= largest_float;
      const Lanes<bool> nothing = (finite && largest == 0.f) || factor[0] == 0.f;
      const Lanes<double> weight = where(finite, level[0] + convert<double>(shift + a), not_a_number);
      const Lanes<double> exponent[1] = {where(nothing, Lanes<double>(-infinity), weight)};
      d_row.drop(nothing);
      d_row.store_scaled(x.row_units.data, x.row_units.at(of.b, t, head) + lanes.octet * 8, two_to(-a), has_row);
      const Lanes<float> offsets[1] = {where(nothing, Lanes<float>(0.f), offset)};
      const Lanes<float> inverse[1] = {two_to(-n)};
      const Lanes<bool> writes = lanes.octet == 0;
      store(x.of_rows.exponent, i + row_slot, exponent, writes);
      store(x.of_rows.factor, i + row_slot, factor, writes);
      store(x.of_rows.offset, i + row_slot, offsets, writes);
      store(x.of_rows.inverse, i + row_slot, inverse, writes);
    }
  }

 private:
  SYMPOW_DEVICE static Lanes<float> most(Lanes<float> a, Lanes<float> b) { return larger(a, b); }
  SYMPOW_DEVICE static Lanes<float> plus(Lanes<float> a, Lanes<float> b) { return a + b; }
};

}  // namespace sympow::cuda
