// States before each chunk, from the sums of the chunks.
#pragma once

#include "../layout/blocks.hpp"
#include "../layout/chunks.hpp"
#include "../layout/exponents.hpp"
#include "../layout/state_rows.hpp"

namespace sympow::cuda {

/// S ← keep S + add ΔS, Z ← keep Z + add ΔZ over the chunks of a sequence and head, from the initial state (0 where
/// there is none). Writes c_m 2^-shift S and c_m 2^-shift Z before each chunk, c_m the multinomial coefficient of
/// monomial m, row by row as state_rows.hpp has them, and S, Z after the last one. Where keep is 0 the old state is not
/// looked at. S is written in one term of T or in two, Z in three, as a float, or both, as prefixes ask for.
/// `reversed`: from the last chunk to the first, as adjoint states go.
///
/// e: a multiple of 4. A thread walks over the chunks with four value channels of a row, or with a row's normaliser,
/// loads of four chunks ahead. Of a chunk and head D (e + 1) floats are read, and R (e + 4), or R (2 e + 4), numbers of
/// T written, R rows.
template <class T>
struct Scan {
  static constexpr int threads = 128, shared_bytes = 0, blocks_per_multiprocessor = 7;

  struct Args {
    ChunkSums own;
    ChunkArrays chunks;
    Prefixes<T> prefixes;
    States initial;  ///< sums.data null: there is none
    States final;    ///< sums.data null: not wanted
    Sequences sequences;
    Heads heads;
    int power, d, e;
    bool reversed = false;
  };

  static Blocks blocks(const Sequences& sequences, const Heads& heads, int power, int d, int e) {
    const int rows = state_rows(power, d);
    return {std::int64_t{sequences.batch} * (of_sums(rows, e) + of_normaliser(rows)), heads.state};
  }

  SYMPOW_DEVICE static void run(const Args& args) {
    using namespace block;
    const int rows = state_rows(args.power, args.d), D = monomial_count(args.power, args.d);
    const int sums = of_sums(rows, args.e), all = sums + of_normaliser(rows);
    const int b = block_index(0) / all, place = block_index(0) % all;
    const Lanes<int> thread = lane() + 32 * warp();
    if (args.sequences.place(b) < 0) return;
    if (place < sums) {
      const Lanes<int> entry = (thread + place * threads) * 4, row = entry / args.e;
      const auto write = [&](std::int64_t slot, const Lanes<float>(&x)[4]) {
        const Lanes<std::int64_t> to = entry + slot * rows * args.e;
        const Lanes<Pair<T>> four[2] = {pack<T>(x[0], x[1]), pack<T>(x[2], x[3])};
        store(args.prefixes.sums, to, four, row < rows);
        if (!splits(args)) return;
        const Lanes<Pair<T>> rest[2] = {pack<T>(x[0] - lower(four[0]), x[1] - upper(four[0])),
                                        pack<T>(x[2] - lower(four[1]), x[3] - upper(four[1]))};
        store(args.prefixes.rest, to, rest, row < rows);
      };
      walk<4>(args, b, args.own.sums, args.initial.sums, args.final.sums, D, args.e, row, entry % args.e, write);
    } else {
      const Lanes<int> row = thread + (place - sums) * threads;
      const auto write = [&](std::int64_t slot, const Lanes<float>(&x)[1]) {
        if (args.prefixes.whole.data) store(args.prefixes.whole, row + slot * rows, x, row < rows);
        if (!args.prefixes.normaliser.data) return;
        const Lanes<float> mid = x[0] - lower(pack<T>(x[0], x[0]));
        Lanes<Pair<T>> terms[2] = {pack<T>(x[0], mid)};  // hi and mid, low and 0
        terms[1] = pack<T>(mid - upper(terms[0]), Lanes<float>(0.f));
        store(args.prefixes.normaliser, (row + slot * rows) * 4, terms, row < rows);
      };
      walk<1>(args, b, args.own.normaliser, args.initial.normaliser, args.final.normaliser, D, 1, row, Lanes<int>(0),
              write);
    }
  }

 private:
  static constexpr int ahead = 4;

  SYMPOW_DEVICE static bool splits(const Args& args) { return sizeof(T) == 2 && args.prefixes.rest.data; }
  SYMPOW_HOST_DEVICE static int of_sums(int rows, int e) { return (rows * e / 4 + threads - 1) / threads; }
  SYMPOW_HOST_DEVICE static int of_normaliser(int rows) { return (rows + threads - 1) / threads; }

  /// N entries of a lane, over all chunks: of `row` from `column` on, `width` numbers a monomial.
  template <std::size_t N, class Write>
  SYMPOW_DEVICE static void walk(const Args& args, int b, Global<float> own, Global<float> initial, Global<float> final,
                                 int D, int width, const Lanes<int>& row, const Lanes<int>& column,
                                 const Write& write) {
    using namespace block;
    const int h = block_index(1), size = D * width;
    const Sequence sequence = args.sequences[b];
    const std::int64_t slot = std::int64_t{h} * args.sequences.slots + sequence.slot;
    const auto slot_of = [&](int n) { return slot + (args.reversed ? sequence.chunks - 1 - n : n); };
    const Lanes<int> monomial = monomial_of_row(args.power, args.d, row), m = larger(monomial, 0);
    const Lanes<bool> active = monomial >= 0;
    const Lanes<int> entry = m * width + column;
    const Lanes<std::int64_t> at_state = entry + (std::int64_t{args.sequences.place(b)} * args.heads.state + h) * size;

    Lanes<float> ring[ahead][N], x[N];
    SYMPOW_UNROLL
    for (int k = 0; k < ahead; ++k) {
      SYMPOW_UNROLL
      for (std::size_t i = 0; i < N; ++i) ring[k][i] = 0.f;
      if (k < sequence.chunks) load(ring[k], own, entry + slot_of(k) * size, active);
    }
    SYMPOW_UNROLL
    for (std::size_t i = 0; i < N; ++i) x[i] = 0.f;
    if (initial.data) load(x, initial, at_state, active);
    const Lanes<float> c = multinomial(args.power, args.d, m);

    Lanes<float> keeps[1], adds[1];
    Lanes<std::int32_t> shifts[1];
    for (int from = 0; from < sequence.chunks; from += ahead) {
      if (from % 32 == 0) {
        const Lanes<int> n = lane() + from;
        const Lanes<std::int64_t> at = (args.reversed ? -n + (sequence.chunks - 1) : n) + slot;
        load(keeps, args.chunks.keep, at, n < sequence.chunks);
        load(adds, args.chunks.add, at, n < sequence.chunks);
        load(shifts, args.chunks.shift, at, n < sequence.chunks);
      }
      SYMPOW_UNROLL
      for (int k = 0; k < ahead; ++k) {
        const int n = from + k;
        if (n >= sequence.chunks) continue;
        const Lanes<float> keep = shuffle(keeps[0], n % 32), add = shuffle(adds[0], n % 32);
        const Lanes<float> scale = c * two_to(-shuffle(shifts[0], n % 32));
        Lanes<float> scaled[N];
        SYMPOW_UNROLL
        for (std::size_t i = 0; i < N; ++i) {
          scaled[i] = x[i] * scale;
          x[i] = where(keep == 0.f, 0.f, x[i] * keep) + ring[k][i] * add;
        }
        write(slot_of(n), scaled);
        if (n + ahead < sequence.chunks) load(ring[k], own, entry + slot_of(n + ahead) * size, active);
      }
    }
    if (final.data) store(final, at_state, x, active);
  }
};

}  // namespace sympow::cuda
