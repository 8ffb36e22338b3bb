// What passes through a whole chunk: couplings of the keys before it with the rows after it.
#pragma once

#include "block_sum.hpp"
#include "state_part.hpp"

namespace sympow::cuda {

/// Writes `passing` of FlowArrays: 2^{G_c} ⟨H, S⟩ = 2^{G_c} Σ_m c_m (Σ_c H_mc S_mc + Z_m(H) Z_m(S)) of the state S
/// before a chunk and the adjoint H of the one after it; 0 where a gate of 0 lies between.
///
/// A block of eight warps has a chunk and state head, a lane 8 channels of a row. R (4 e + 8) bytes are read, of floats
/// and of split states R (8 e + 8).
/// Roundings: those of both states; sums of a lane in float, of lanes in double.
template <class T>
struct Passing {
  static constexpr int warps = 8, threads = 32 * warps, blocks_per_multiprocessor = 4, shared_bytes = 128;

  struct Args {
    StatesOfChunks<T> states, adjoints;
    Global<const double> total;  ///< G_c of ChunkArrays
    Global<double> passing;
    Sequences sequences;
    Heads heads;
    int power, d, e;
  };

  static Blocks blocks(const Sequences& sequences, const Heads& heads) {
    return {std::int64_t{sequences.batch} * sequences.most_chunks(), heads.state};
  }

  SYMPOW_DEVICE static void run(const Args& x) {
    using namespace block;
    const int most_chunks = x.sequences.most_chunks(), b = block_index(0) / most_chunks;
    const int n = block_index(0) % most_chunks, w = warp();
    const Sequence sequence = x.sequences[b];
    if (n >= sequence.chunks) return;
    const std::int64_t slot = std::int64_t{block_index(1)} * x.sequences.slots + sequence.slot + n;
    const double total = uniform(load_one(x.total, slot));
    const double level = x.states.level(slot), adjoint_level = x.adjoints.level(slot);
    const bool is_empty = total == -infinity || level == -infinity || adjoint_level == -infinity;
    const int rows = state_rows(x.power, x.d);
    Lanes<double> sum = 0.;
    for (int from = 32 * w; from < rows && !is_empty; from += threads) {
      const Lanes<int> row = lane() + from, monomial = monomial_of_row(x.power, x.d, row);
      const Lanes<float> c = multinomial(x.power, x.d, larger(monomial, 0));
      const Lanes<float> inverse = where(monomial >= 0 && row < rows, 1.f / c, Lanes<float>(0.f));
      const Lanes<std::int64_t> at = row + slot * rows;
      Lanes<float> z[2][1] = {{0.f}, {0.f}};
      load(z[0], x.states.prefixes.whole, at, row < rows);
      load(z[1], x.adjoints.prefixes.whole, at, row < rows);
      sum += convert<double>(z[0][0] * z[1][0] * inverse);
      const int octets = x.e / 8, all = 32 * octets;  // of these rows, next to each other
      for (int first = 0; first < all; first += 32) {
        const Lanes<int> octet = lane() + first, of_row = octet / octets;
        const Lanes<bool> exists = of_row + from < rows;
        const Lanes<std::int64_t> entry = octet * 8 + (slot * rows + from) * x.e;
        const OctetOfRow s = x.states.octet(entry, exists), h = x.adjoints.octet(entry, exists);
        Lanes<float> products = 0.f;
        SYMPOW_UNROLL
        for (int i = 0; i < 8; i += 2) products += s.entries[i] * h.entries[i] + s.entries[i + 1] * h.entries[i + 1];
        sum += convert<double>(products * shuffle(inverse, of_row));
      }
    }
    Lanes<double> result[1] = {block_sum<warps>(sum, w)};
    if (w != 0) return;
    if (!is_empty)
      result[0] = result[0] * wide_two_to(x.states.unit(slot, level) + x.adjoints.unit(slot, adjoint_level) + total);
    store(x.passing, lane() + slot, result, lane() == 0);
  }
};

}  // namespace sympow::cuda
