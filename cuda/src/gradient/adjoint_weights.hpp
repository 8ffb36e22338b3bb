// What rows weigh in the adjoint of the state before their chunk.
#pragma once

#include <type_traits>

#include "../layout/blocks.hpp"
#include "../layout/exponents.hpp"
#include "../layout/gradients.hpp"
#include "unit_rows.hpp"

namespace sympow::cuda {

/// Writes of all query heads w_i (layout/gradients.hpp), 0 of rows that do not see the state; and of the state head
/// that they read how many of its tokens see it, 2^exponent > |ℓ_i| of these, begin = max h_i, and the mass Σ |w_i|
/// ‖q̂_i‖^P: `end` and `own_mass` of ChunkArrays, for Levels to go through from the last chunk to the first.
///
/// A block of four warps has a chunk and state head, a lane a token. Of a row 28 bytes are read, 4 written.
struct AdjointWeights {
  static constexpr int warps = 4, threads = 32 * warps, blocks_per_multiprocessor = 8, shared_bytes = 3 * 128;

  struct Args {
    TokenArrays tokens;
    RowArrays of_rows;
    Global<float> weights;  ///< w_i, entries as in RowArrays
    Global<std::int32_t> ends, exponents;
    Global<double> begin;  ///< of state head h and a slot at h slots + slot, as the three others
    Global<float> mass;
    Sequences sequences;
    Heads heads;
  };

  static Blocks blocks(const Sequences& sequences, const Heads& heads) {
    return {std::int64_t{sequences.batch} * sequences.most_chunks(), heads.state};
  }

  SYMPOW_DEVICE static void run(const Args& x) {
    using namespace block;
    const int most_chunks = x.sequences.most_chunks(), b = block_index(0) / most_chunks;
    const int n = block_index(0) % most_chunks, state_head = block_index(1), chunk = x.sequences.chunk, w = warp();
    const Sequence sequence = x.sequences[b];
    if (n >= sequence.chunks) return;
    const int left = sequence.length - n * chunk, length = left < chunk ? left : chunk;
    const int tokens = (length + block_tokens - 1) / block_tokens * block_tokens;
    const int group = x.heads.query / x.heads.state;
    const std::int64_t own = sequence.slot + n, slot = std::int64_t{state_head} * x.sequences.slots + own;
    const auto row_slot = [&](int h) {
      return (std::int64_t{state_head * group + h} * x.sequences.slots + own) * chunk;
    };

    // Where the first token sees the state, R of it is over the rows that do.
    const bool sees = uniform(load_one(x.tokens.reset, slot * chunk)) < 0;
    Lanes<double> begin = -infinity;
    for (int h = 0; h < group && sees; ++h) begin = larger(begin, load_one(x.of_rows.peak, row_slot(h)));
    const Lanes<double> unit = ceiling(begin);
    Lanes<float> mass = 0.f, largest = 0.f;
    Lanes<int> count = 0;
    for (int from = 32 * w; from < tokens; from += threads) {
      const Lanes<int> i = lane() + from;
      const Lanes<bool> counts = load_one(x.tokens.reset, i + slot * chunk) < 0 && i < length;
      count = count + where(counts, 1, 0);
      for (int h = 0; h < group; ++h) {
        const Lanes<std::int64_t> at = i + row_slot(h);
        const Lanes<double> exponent = load_one(x.of_rows.exponent, at);
        const Lanes<bool> has_weight = counts && !(exponent == -infinity);
        const Lanes<float> weight[1] = {
            where(has_weight, two_to(exponent - unit) * load_one(x.of_rows.factor, at), Lanes<float>(0.f))};
        store(x.weights, at, weight);
        mass += where(has_weight, absolute(weight[0]) * load_one(x.of_rows.mass, at), Lanes<float>(0.f));
        const Lanes<float> offset = absolute(load_one(x.of_rows.offset, at));
        largest = larger(largest, where(has_weight && offset <= largest_float, offset, Lanes<float>(0.f)));
      }
    }

    Arena arena;
    const auto masses = arena.take<float>(warps), sizes = arena.take<float>(warps);
    const auto counts = arena.take<std::int32_t>(warps);
    SYMPOW_UNROLL
    for (int mask = 1; mask < 32; mask *= 2) {
      mass += shuffle_xor(mass, mask);
      largest = larger(largest, shuffle_xor(largest, mask));
      count = count + shuffle_xor(count, mask);
    }
    put(masses, w, mass);
    put(sizes, w, largest);
    put(counts, w, count);
    barrier();
    if (w != 0) return;
    Lanes<float> all_masses[std::size_t{warps}], all_sizes[std::size_t{warps}];
    Lanes<std::int32_t> all_counts[std::size_t{warps}];
    load(all_masses, masses, Lanes<int>(0));
    load(all_sizes, sizes, Lanes<int>(0));
    load(all_counts, counts, Lanes<int>(0));
    const auto write = [&](const auto& to, const auto& value) {
      const std::remove_cvref_t<decltype(value)> one[1] = {value};
      store(to, lane() + slot, one, lane() == 0);
    };
    write(x.ends, all_counts[0] + all_counts[1] + all_counts[2] + all_counts[3]);
    write(x.exponents, exponent_above(larger(larger(all_sizes[0], all_sizes[1]), larger(all_sizes[2], all_sizes[3]))));
    write(x.begin, begin);
    write(x.mass, (all_masses[0] + all_masses[1]) + (all_masses[2] + all_masses[3]));
  }

 private:
  template <class X>
  SYMPOW_DEVICE static void put(block::Shared<X> memory, int i, const Lanes<X>& value) {
    const Lanes<X> one[1] = {value};
    block::store(memory, block::lane() + i, one, block::lane() == 0);
  }
};

}  // namespace sympow::cuda
