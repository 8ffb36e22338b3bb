// Levels of the states between chunks: log2 of the largest weight, and the factors of the scan that follow from it.
#pragma once

#include "../layout/blocks.hpp"
#include "../layout/chunks.hpp"
#include "../layout/exponents.hpp"

namespace sympow::cuda {

/// Over the chunks of a sequence and head, from L and A of the initial state (-∞ and 0 where there is none):
///   L' = max(L + total, end)
///   keep = 2^{⌈L⌉ - ⌈L'⌉ + total}, add = 2^{⌈end⌉ - ⌈L'⌉}     0 of what is empty, or lies before a reset
///   A' = keep A + add own_mass
/// Writes `enter` (L), `mass` (A), `keep`, `add` and `shift` of ChunkArrays, and L, A of the final state.
///
/// A warp a sequence and head, 32 chunks at a time, a lane a chunk: a lane's numbers are loaded and its powers of 2
/// made at once; only the additions are one after the other. `reversed`: from the last chunk to the first, as adjoint
/// states go.
struct Levels {
  static constexpr int threads = 32, shared_bytes = 0, blocks_per_multiprocessor = 16;

  struct Args {
    Sequences sequences;
    Heads heads;
    ChunkArrays chunks;
    States initial;  ///< `level` and `mass` are read; level.data null: empty states
    States final;    ///< `level` and `mass` are written; level.data null: not wanted
    bool reversed = false;
  };

  static Blocks blocks(const Sequences& sequences, const Heads& heads) { return {sequences.batch, heads.state}; }

  SYMPOW_DEVICE static void run(const Args& args) {
    using namespace block;
    const int b = block_index(0), h = block_index(1);
    const Sequence sequence = args.sequences[b];
    const int own_place = args.sequences.place(b);
    if (own_place < 0) return;
    const std::int64_t state = std::int64_t{own_place} * args.heads.state + h;
    const std::int64_t slot = std::int64_t{h} * args.sequences.slots + sequence.slot;

    Lanes<double> level[1] = {-infinity};
    Lanes<float> mass[1] = {0.f};
    if (args.initial.level.data) {
      load(level, args.initial.level, state);
      load(mass, args.initial.mass, state);
    }
    for (int from = 0; from < sequence.chunks; from += 32) {
      const int count = sequence.chunks - from < 32 ? sequence.chunks - from : 32;
      const Lanes<bool> active = lane() < count;
      const Lanes<int> place = lane() + from;
      const Lanes<std::int64_t> at = (args.reversed ? -place + (sequence.chunks - 1) : place) + slot;
      Lanes<double> total[1] = {0.}, end[1] = {-infinity};
      Lanes<float> own_mass[1] = {0.f};
      load(total, args.chunks.total, at, active);
      load(end, args.chunks.end, at, active);
      load(own_mass, args.chunks.own_mass, at, active);

      Lanes<double> enter[1] = {level[0]}, leave = level[0];
      for (int n = 0; n < count; ++n) {
        enter[0] = where(lane() == n, level[0], enter[0]);
        const Lanes<double> decay = shuffle(total[0], n);
        level[0] = larger(where(decay == -infinity, -infinity, level[0] + decay), shuffle(end[0], n));
        leave = where(lane() == n, level[0], leave);
      }

      const Lanes<double> unit = ceiling(leave);
      const Lanes<bool> nothing = enter[0] == -infinity || total[0] == -infinity;
      const Lanes<float> keep[1] = {where(nothing, 0.f, two_to(ceiling(enter[0]) - unit + total[0]))};
      const Lanes<float> add[1] = {where(end[0] == -infinity, 0.f, two_to(ceiling(end[0]) - unit))};
      const Lanes<float> added = add[0] * own_mass[0];
      Lanes<float> enter_mass[1] = {mass[0]};
      for (int n = 0; n < count; ++n) {
        enter_mass[0] = where(lane() == n, mass[0], enter_mass[0]);
        const Lanes<float> factor = shuffle(keep[0], n), kept = where(factor == 0.f, 0.f, mass[0] * factor);
        mass[0] = kept + shuffle(added, n);
      }
      const Lanes<std::int32_t> shift[1] = {prefix_shift(enter_mass[0])};

      store(args.chunks.enter, at, enter, active);
      store(args.chunks.mass, at, enter_mass, active);
      store(args.chunks.keep, at, keep, active);
      store(args.chunks.add, at, add, active);
      store(args.chunks.shift, at, shift, active);
    }
    if (!args.final.level.data) return;
    store(args.final.level, lane() + state, level, lane() < 1);
    store(args.final.mass, lane() + state, mass, lane() < 1);
  }
};

}  // namespace sympow::cuda
