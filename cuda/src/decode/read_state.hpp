// What queries read from states: Σ_m c_m φ_m(q̂) S_m and Σ_m c_m φ_m(q̂) Z_m, slab by slab of monomials.
#pragma once

#include "../layout/monomials.hpp"
#include "append_tail.hpp"
#include "channels.hpp"
#include "decode.hpp"
#include "ring.hpp"

namespace sympow::cuda {

/// A block has a slab of at most `most_rows` monomials of one state, and Q of the queries that share it; blocks of
/// other queries read the slab again, at about the same time. A thread holds four value channels, and takes every so
/// many rows of S: each float is loaded once, 16 bytes a lane, `depth` loads of a thread on their way.
///
/// All in float: c_m φ_m(q̂) by P products, then sums in this order: rows of a thread, threads, slabs (FinishRows). A
/// state must be readable, whatever it holds. An inactive sequence has no parts. The first block of a state head
/// appends its new tokens to the tail. Cost: 2 n D (e + 1) floating-point operations for n queries; 4 D (e + 1) bytes
/// of state, 4 n (e + 1) a slab.
template <class T, int P, int d, int Q>
struct ReadState {
  static_assert((d & (d - 1)) == 0 && (Q == 1 || Q % 4 == 0));
  static constexpr int D = monomial_count(P, d);
  static constexpr int warps = 4, threads = 32 * warps, blocks_per_multiprocessor = Q == 1 ? 8 : 4;
  static constexpr int depth = 4, least_rows = 32, most_rows = 264;
  static constexpr int turns = (most_rows + threads - 1) / threads;  ///< of a thread to form the monomials
  static constexpr int vector = Q < 4 ? Q : 4;                       ///< numbers of queries next to each other
  static constexpr int most_of_query = 4 * threads + 32;             ///< sums of a query in shared memory
  static constexpr int shared_bytes = padded(4 * Q * d) + padded(4 * Q * most_rows) + 4 * Q * most_of_query + 128;

  struct Args {
    Rows<const T> queries;
    NewTokens<T> fresh;
    TailArrays<T> tail;
    States states;
    StateParts parts;
    Heads heads;
    int tokens, e, rows;  ///< new tokens; value channels, a multiple of 8 up to 512; rows of a slab
    Rotary rotary = {};   ///< of tokens from the last fold on
  };

  /// Rows of a slab that give every multiprocessor enough blocks where states are few.
  static constexpr int rows(int multiprocessors, std::int64_t states) {
    const std::int64_t wanted = (std::int64_t{multiprocessors} * blocks_per_multiprocessor + states - 1) / states;
    const std::int64_t fewest = (D + most_rows - 1) / most_rows, slabs = wanted < fewest ? fewest : wanted;
    const auto even = static_cast<int>((D + slabs - 1) / slabs + 7) / 8 * 8;  // whole sectors of Z
    return even < least_rows ? least_rows : even;
  }
  SYMPOW_HOST_DEVICE static constexpr int slabs(int rows) { return (D + rows - 1) / rows; }
  /// x: blocks of queries, times slabs. y: state heads. z: sequences.
  static constexpr Blocks blocks(int batch, int query_heads, int state_heads, int tokens, int rows) {
    return {(query_heads / state_heads * tokens + Q - 1) / Q * slabs(rows), state_heads, batch};
  }

  SYMPOW_DEVICE static void run(const Args& x) {
    using namespace block;
    const int w = warp(), head = block_index(1), b = block_index(2);
    const TailSlot place = x.tail.slots[b];
    if (!place.is_active()) return;
    const int group = x.heads.query / x.heads.state, queries = group * x.tokens, query_blocks = (queries + Q - 1) / Q;
    const int first_query = block_index(0) % query_blocks * Q, slab = block_index(0) / query_blocks;
    const int first = slab * x.rows, count = D - first < x.rows ? D - first : x.rows;
    const std::int64_t state = std::int64_t{place.index} * x.heads.state + head;
    const Lanes<int> thread = lane() + w * 32;

    Arena arena;
    const auto query = arena.take<float>(Q * d), phi = arena.take<float>(Q * most_rows);
    const auto sums = arena.take<float>(Q * most_of_query), normalisers = arena.take<float>(Q * warps);

    const int quarters = x.e / 4, rows_at_once = threads / quarters, step = rows_at_once * x.e;
    const Lanes<int> row = thread / quarters;
    const Lanes<int> rows = where(row < rows_at_once, (rows_at_once - 1 + count - row) / rows_at_once, 0);
    const Lanes<std::int64_t> sums_at = thread * 4 + (state * D + first) * x.e;
    Ring<depth, float, 4> ring;
    const auto bring = [&](int n, Lanes<float>(&four)[4]) { load(four, x.states.sums, sums_at + n * step, rows > n); };

    // What the monomials wait for is asked for before the state.
    Queries of_block;
    of_block.bring(x, w, b, head, first_query, queries);
    Lanes<float> z[std::size_t{turns}][1];
    SYMPOW_UNROLL
    for (int turn = 0; turn < turns; ++turn) {
      const Lanes<int> m = thread + turn * threads;
      z[turn][0] = 0.f;
      load(z[turn], x.states.normaliser, m + (state * D + first), m < count);
    }
    ring.start(bring);
    of_block.store_normalised(x, w, place, head, first_query, query);
    barrier();

    Lanes<float> normaliser[std::size_t{Q}];
    SYMPOW_UNROLL
    for (int i = 0; i < Q; ++i) normaliser[i] = 0.f;
    SYMPOW_UNROLL
    for (int turn = 0; turn < turns; ++turn) {
      if (turn * threads + w * 32 >= count) continue;
      const Lanes<int> m = thread + turn * threads;
      const auto monomial = Monomial<P>::template at<d>(d, where(m < count, m + first, 0));
      const Lanes<float> coefficient = monomial.coefficient();
      SYMPOW_UNROLL
      for (int i = 0; i < Q; i += vector) {
        Lanes<float> of_queries[std::size_t{vector}];
        SYMPOW_UNROLL
        for (int v = 0; v < vector; ++v) {
          of_queries[v] = coefficient;
          SYMPOW_UNROLL
          for (int l = 0; l < P; ++l) {
            Lanes<float> factor[1];
            load(factor, query, monomial.channel[l] + (i + v) * d);
            of_queries[v] *= factor[0];
          }
          normaliser[i + v] += of_queries[v] * z[turn][0];
        }
        store(phi, m * vector + i * most_rows, of_queries, m < count);
      }
    }
    SYMPOW_UNROLL
    for (int i = 0; i < Q; ++i) {
      const Lanes<float> of_warp[1] = {sum_over(normaliser[i], 32)};
      store(normalisers, lane() + (i * warps + w), of_warp, lane() < 1);
    }
    barrier();

    Lanes<float> sum[std::size_t{Q}][4];
    SYMPOW_UNROLL
    for (int i = 0; i < Q; ++i) {
      SYMPOW_UNROLL
      for (int c = 0; c < 4; ++c) sum[i][c] = 0.f;
    }
    const Lanes<int> phi_at = row * vector;
    ring.run((count + rows_at_once - 1) / rows_at_once, bring, [&](int n, const Lanes<float>(&four)[4]) {
      SYMPOW_UNROLL
      for (int i = 0; i < Q; i += vector) {
        Lanes<float> of_queries[std::size_t{vector}];
        SYMPOW_UNROLL
        for (int v = 0; v < vector; ++v) of_queries[v] = 0.f;
        load(of_queries, phi, phi_at + (n * rows_at_once * vector + i * most_rows), rows > n);
        SYMPOW_UNROLL
        for (int v = 0; v < vector; ++v) {
          SYMPOW_UNROLL
          for (int c = 0; c < 4; ++c) sum[i + v][c] += of_queries[v] * four[c];
        }
      }
    });

    const int of_query = 4 * threads + x.e % 32;  // neighbouring channels of two queries meet different banks
    SYMPOW_UNROLL
    for (int i = 0; i < Q; ++i) store(sums, thread * 4 + i * of_query, sum[i]);
    barrier();
    const std::int64_t first_row = (std::int64_t{b} * x.heads.state + head) * queries + first_query;
    const std::int64_t part = first_row * slabs(x.rows) + slab;  // of the first query
    const int left = queries - first_query < Q ? queries - first_query : Q;
    SYMPOW_ROLL
    for (int from = 0; from < left * x.e; from += threads) {
      const Lanes<int> o = thread + from, i = o / x.e, c = o % x.e;
      Lanes<float> total = 0.f;
      for (int r = 0; r < rows_at_once; ++r) {
        Lanes<float> of_thread[1] = {0.f};
        load(of_thread, sums, i * of_query + c + r * x.e, o < left * x.e);
        total += of_thread[0];
      }
      const Lanes<float> result[1] = {total};
      store(x.parts.sums, (i * std::int64_t{slabs(x.rows)} + part) * x.e + c, result, o < left * x.e);
    }
    if (w == 0) {
      Lanes<float> of_warps[4] = {0.f, 0.f, 0.f, 0.f};
      load(of_warps, normalisers, lane() * warps, lane() < left);
      const Lanes<float> result[1] = {(of_warps[0] + of_warps[1]) + (of_warps[2] + of_warps[3])};
      store(x.parts.normaliser, lane() * std::int64_t{slabs(x.rows)} + part, result, lane() < left);
    }
    if (block_index(0) == 0)
      append_tail(x.fresh, x.tail, x.rotary, x.heads, b, place, head, x.tokens, d, x.e, thread, threads);
  }

 private:
  /// q̂ of the block's queries, a warp every fourth; 0 beyond the last.
  struct Queries {
    static constexpr int channels = d > 64 ? 4 : 2, each = (Q + warps - 1) / warps;
    Lanes<block::Pair<T>> pairs[std::size_t{each}][std::size_t{channels / 2}];

    SYMPOW_DEVICE void bring(const Args& x, int w, int b, int head, int first, int queries) {
      using namespace block;
      const int group = x.heads.query / x.heads.state;
      SYMPOW_UNROLL
      for (int n = 0; n < each; ++n) {
        SYMPOW_UNROLL
        for (int c = 0; c < channels / 2; ++c) pairs[n][c] = Pair<T>{};
        const int i = first + n * warps + w, token = i % x.tokens;
        const bool there = n * warps + w < Q && i < queries;
        load(pairs[n], x.queries.data,
             lane() * channels + x.queries.at(b, std::int64_t{token}, head * group + i / x.tokens),
             lane() < (there ? d / channels : 0));
      }
    }
    SYMPOW_DEVICE void store_normalised(const Args& x, int w, const TailSlot& slot, int head, int first,
                                        block::Shared<float> to) const {
      using namespace block;
      SYMPOW_UNROLL
      for (int n = 0; n < each; ++n) {
        if (n * warps + w >= Q) continue;
        Lanes<float> row[std::size_t{channels}];
        unpack(row, pairs[n]);
        if (x.rotary.rates.data)
          x.rotary.turn(row, d, lane(), d / (2 * channels), slot.index,
                        std::int64_t{slot.count + (first + n * warps + w) % x.tokens}, x.heads.key_of_state(head),
                        lane() < d / channels);
        normalise(row, 32);
        store(to, lane() * channels + (n * warps + w) * d, row, lane() < d / channels);
      }
    }
  };
};

}  // namespace sympow::cuda
