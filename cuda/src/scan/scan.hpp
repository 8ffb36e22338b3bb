// States before each chunk, from the sums of the chunks.
#pragma once

#include "../layout/blocks.hpp"
#include "../layout/chunks.hpp"
#include "../layout/exponents.hpp"
#include "../layout/monomials.hpp"

namespace sympow::cuda {

/// S ← keep S + add ΔS, Z ← keep Z + add ΔZ over the chunks of a sequence and head, from the initial state (0 where
/// there is none). Writes c_m 2^-shift S and c_m 2^-shift Z before each chunk, c_m the multinomial coefficient of
/// monomial m, and S, Z after the last one. Where keep is 0 the old state is not looked at. S is written in one term of
/// T or in two, as prefixes ask for.
///
/// d: a multiple of 8, so D is even; e: a multiple of 4. A thread walks over the chunks with four value channels of a
/// monomial, or with two entries of the normaliser, loads of four chunks ahead. Of a chunk and head D (e + 1) floats
/// are read, and D (e + 3), or D (2 e + 3), numbers of T written.
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
    int power, d, D, e;
  };

  static Blocks blocks(const Sequences& sequences, const Heads& heads, int D, int e) {
    return {std::int64_t{sequences.batch} * (of_sums(D, e) + of_normaliser(D)), heads.state};
  }

  SYMPOW_DEVICE static void run(const Args& args) {
    using namespace block;
    const int sums = of_sums(args.D, args.e), all = sums + of_normaliser(args.D);
    const int b = block_index(0) / all, place = block_index(0) % all;
    const Lanes<int> thread = lane() + 32 * warp();
    if (place < sums) {
      const int size = args.D * args.e;
      const Lanes<int> entry = (thread + place * threads) * 4;
      const auto coefficients = [&](Lanes<float>(&c)[4]) {
        c[0] = c[1] = c[2] = c[3] = multinomial(args.power, args.d, entry / args.e);
      };
      const auto write = [&](std::int64_t slot, const Lanes<float>(&x)[4]) {
        const Lanes<Pair<T>> four[2] = {pack<T>(x[0], x[1]), pack<T>(x[2], x[3])};
        store(args.prefixes.sums, entry + slot * size, four, entry < size);
        if (!splits(args)) return;
        const Lanes<Pair<T>> rest[2] = {pack<T>(x[0] - lower(four[0]), x[1] - upper(four[0])),
                                        pack<T>(x[2] - lower(four[1]), x[3] - upper(four[1]))};
        store(args.prefixes.rest, entry + slot * size, rest, entry < size);
      };
      walk<4>(args, b, args.own.sums, args.initial.sums, args.final.sums, size, entry, coefficients, write);
    } else {
      const int size = args.D;
      const Lanes<int> entry = (thread + (place - sums) * threads) * 2;
      const auto coefficients = [&](Lanes<float>(&c)[2]) {
        c[0] = multinomial(args.power, args.d, entry);
        c[1] = multinomial(args.power, args.d, entry + 1);
      };
      const auto write = [&](std::int64_t slot, const Lanes<float>(&x)[2]) {
        Lanes<Pair<T>> terms[4];  // of both: hi and mid, low and 0
        SYMPOW_UNROLL
        for (int i = 0; i < 2; ++i) {
          const Lanes<float> mid = x[i] - lower(pack<T>(x[i], x[i]));
          terms[2 * i] = pack<T>(x[i], mid);
          terms[2 * i + 1] = pack<T>(mid - upper(terms[2 * i]), Lanes<float>(0.f));
        }
        constexpr int at_once = 16 / static_cast<int>(sizeof(Pair<T>));
        SYMPOW_UNROLL
        for (int i = 0; i < 4; i += at_once) {
          Lanes<Pair<T>> some[std::size_t{at_once}];
          SYMPOW_UNROLL
          for (int n = 0; n < at_once; ++n) some[n] = terms[i + n];
          store(args.prefixes.normaliser, (entry + slot * size) * 4 + 2 * i, some, entry < size);
        }
      };
      walk<2>(args, b, args.own.normaliser, args.initial.normaliser, args.final.normaliser, size, entry, coefficients,
              write);
    }
  }

 private:
  static constexpr int ahead = 4;

  SYMPOW_DEVICE static bool splits(const Args& args) { return sizeof(T) == 2 && args.prefixes.rest.data; }
  SYMPOW_HOST_DEVICE static int of_sums(int D, int e) { return (D * e / 4 + threads - 1) / threads; }
  SYMPOW_HOST_DEVICE static int of_normaliser(int D) { return (D / 2 + threads - 1) / threads; }

  /// N entries of a lane, from `entry` of `size` on, over all chunks.
  template <std::size_t N, class Coefficients, class Write>
  SYMPOW_DEVICE static void walk(const Args& args, int b, Global<float> own, Global<float> initial, Global<float> final,
                                 int size, const Lanes<int>& entry, const Coefficients& coefficients,
                                 const Write& write) {
    using namespace block;
    const int h = block_index(1);
    const Sequence sequence = args.sequences[b];
    const std::int64_t slot = std::int64_t{h} * args.sequences.slots + sequence.slot;
    const Lanes<std::int64_t> at_state = entry + (std::int64_t{b} * args.heads.state + h) * size;
    const Lanes<bool> active = entry < size;

    Lanes<float> ring[ahead][N], x[N], c[N];
    SYMPOW_UNROLL
    for (int k = 0; k < ahead; ++k)
      if (k < sequence.chunks) load(ring[k], own, entry + (slot + k) * size, active);
    SYMPOW_UNROLL
    for (std::size_t i = 0; i < N; ++i) x[i] = 0.f;
    if (initial.data) load(x, initial, at_state, active);
    coefficients(c);

    Lanes<float> keeps[1], adds[1];
    Lanes<std::int32_t> shifts[1];
    for (int from = 0; from < sequence.chunks; from += ahead) {
      if (from % 32 == 0) {
        const Lanes<int> n = lane() + from;
        load(keeps, args.chunks.keep, n + slot, n < sequence.chunks);
        load(adds, args.chunks.add, n + slot, n < sequence.chunks);
        load(shifts, args.chunks.shift, n + slot, n < sequence.chunks);
      }
      SYMPOW_UNROLL
      for (int k = 0; k < ahead; ++k) {
        const int n = from + k;
        if (n >= sequence.chunks) continue;
        const Lanes<float> keep = shuffle(keeps[0], n % 32), add = shuffle(adds[0], n % 32);
        const Lanes<float> scale = two_to(-shuffle(shifts[0], n % 32));
        Lanes<float> scaled[N];
        SYMPOW_UNROLL
        for (std::size_t i = 0; i < N; ++i) {
          scaled[i] = x[i] * (c[i] * scale);
          x[i] = where(keep == 0.f, 0.f, x[i] * keep) + ring[k][i] * add;
        }
        write(slot + n, scaled);
        if (n + ahead < sequence.chunks) load(ring[k], own, entry + (slot + n + ahead) * size, active);
      }
    }
    if (final.data) store(final, at_state, x, active);
  }
};

}  // namespace sympow::cuda
