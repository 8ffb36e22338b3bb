// The largest weight of each key, and the size of values: what rounds sums of gradients.
#pragma once

#include "../layout/blocks.hpp"
#include "../layout/exponents.hpp"
#include "../layout/gradients.hpp"

namespace sympow::cuda {

/// Writes `peak` and `unit` of RowArrays: R_j = max h_i over the tokens i ≥ j before the next gate of 0, and s = 4 +
/// the exponent of the largest value of the chunk, so that 2^-s c_ij of numbers that look random is about 1.
///
/// A warp has a chunk and query head, 32 tokens at a time from the end, a lane a token. Of a token 12 bytes are read, 8
/// written.
struct Peaks {
  static constexpr int threads = 32, blocks_per_multiprocessor = 16, shared_bytes = 0;

  struct Args {
    TokenArrays tokens;
    RowArrays of_rows;
    Global<const std::int32_t> values_exponent;  ///< see KeyUnits
    Sequences sequences;
    Heads heads;
  };

  static Blocks blocks(const Sequences& sequences, const Heads& heads) {
    return {std::int64_t{sequences.batch} * sequences.most_chunks(), heads.query};
  }

  SYMPOW_DEVICE static void run(const Args& x) {
    using namespace block;
    const int most_chunks = x.sequences.most_chunks(), b = block_index(0) / most_chunks;
    const int n = block_index(0) % most_chunks, head = block_index(1), chunk = x.sequences.chunk;
    const Sequence sequence = x.sequences[b];
    if (n >= sequence.chunks) return;
    const int left = sequence.length - n * chunk, length = left < chunk ? left : chunk;
    const int blocks = (length + block_tokens - 1) / block_tokens, state_head = x.heads.state_of_query(head);
    const std::int64_t slot = sequence.slot + n, slots = x.sequences.slots;
    const std::int64_t token_slot = (state_head * slots + slot) * chunk, row_slot = (head * slots + slot) * chunk;

    Lanes<double> after = -infinity;  // R of the token behind these
    Lanes<int> reset_after = -1;      // the last gate of 0 up to that token
    for (int from = (blocks * 2 - 1) * 32; from >= 0; from -= 32) {
      const Lanes<int> i = lane() + from;
      Lanes<double> exponent[1];
      Lanes<std::int32_t> reset[1];
      load(exponent, x.of_rows.exponent, i + row_slot);
      load(reset, x.tokens.reset, i + token_slot);
      Lanes<double> peak = exponent[0];
      SYMPOW_UNROLL
      for (int distance = 1; distance < 32; distance *= 2) {
        const Lanes<int> behind = smaller(lane() + distance, Lanes<int>(31));  // the last lanes meet themselves
        const Lanes<double> later = shuffle(peak, behind);
        peak = where(shuffle(reset[0], behind) <= i, larger(peak, later), peak);
      }
      peak = where(reset_after <= i, larger(peak, after), peak);
      const Lanes<double> peaks[1] = {peak};
      store(x.of_rows.peak, i + row_slot, peaks);
      after = shuffle(peak, Lanes<int>(0));
      reset_after = shuffle(reset[0], Lanes<int>(0));
    }

    Lanes<int> size = -126;
    const std::int64_t first = (x.heads.key_of_state(state_head) * slots + slot) * (chunk / block_tokens);
    for (int from = 0; from < blocks; from += 32) {
      Lanes<std::int32_t> own[1] = {-126};
      load(own, x.values_exponent, lane() + from + first, lane() + from < blocks);
      size = larger(size, own[0]);
    }
    SYMPOW_UNROLL
    for (int mask = 1; mask < 32; mask *= 2) size = larger(size, shuffle_xor(size, mask));
    const Lanes<std::int32_t> unit[1] = {smaller(size + 4, Lanes<int>(126))};
    store(x.of_rows.unit, lane() + (head * slots + slot), unit, lane() == 0);
  }
};

}  // namespace sympow::cuda
