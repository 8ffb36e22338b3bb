// Gradients of gates, from the sums of couplings about each token.
#pragma once

#include "../layout/blocks.hpp"
#include "../layout/exponents.hpp"
#include "../layout/gradients.hpp"

namespace sympow::cuda {

/// d log γ_t = Σ_{j < t ≤ i} t_ij over the pairs and query heads of a state head, in order; and so dβ_t of a key head.
/// For t in block J of 64 tokens of a chunk it is the sum of
///   rows i ≥ t of J with keys in earlier blocks and chunks · keys j < t of J with rows in later blocks · pairs in J ·
///   rows of each later block with keys of all earlier ones · keys j < t of the chunk with rows in later chunks · keys
///   before the chunk with rows after it
/// in double. Of gates nothing is subtracted: where γ_t = 0, and at the first token, all terms are 0, and so is the
/// result. Of β a gauge (PassingAngles) may cancel with the others.
///
/// A warp has a block of 64 tokens and a state head. Of a token and query head 24 bytes are read, and 8 for each block;
/// of the chunked form 8 of each token up to its block.
struct Flows {
  static constexpr int threads = 32, blocks_per_multiprocessor = 16, shared_bytes = 0;

  struct Args {
    FlowArrays flows;
    Rows<float> d_log_gates;  ///< or dβ
    Sequences sequences;
    Heads heads;
    bool is_by_keys = false;  ///< `key` is that of a state head, and has rows in later chunks
  };

  static Blocks blocks(const Sequences& sequences, const Heads& heads) {
    return {TokenBlock::count(sequences), heads.state};
  }

  SYMPOW_DEVICE static void run(const Args& x) {
    using namespace block;
    const TokenBlock of(x.sequences, block_index(0));
    if (of.top >= of.length) return;
    const int state_head = block_index(1), group = x.heads.query / x.heads.state;
    const int n = x.sequences.chunk / block_tokens, own = of.top / block_tokens;
    const int used = (of.length + block_tokens - 1) / block_tokens;
    Lanes<double> sum[2] = {0., 0.};                    // of tokens 2 lane, 2 lane + 1
    Lanes<double> leaving[2] = {0., 0.}, outside = 0.;  // of rows in later chunks: of own keys, and of those before
    const std::int64_t own_slot = std::int64_t{state_head} * x.sequences.slots + of.slot;
    const std::int64_t first = own_slot * x.sequences.chunk, own_token = first + of.top;
    if (x.flows.later.data) {
      load(leaving, x.flows.later, lane() * 2 + own_token);
      for (int from = 0; from < of.top; from += block_tokens) {
        Lanes<double> two[2];
        load(two, x.flows.later, lane() * 2 + (first + from));
        outside += two[0] + two[1];
      }
      outside += where(lane() == 0, load_one(x.flows.passing, own_slot), Lanes<double>(0.));
    }
    for (int h = 0; h < group; ++h) {
      const std::int64_t slot = std::int64_t{state_head * group + h} * x.sequences.slots + of.slot;
      const Lanes<std::int64_t> at = lane() * 2 + (slot * x.sequences.chunk + of.top);
      Lanes<double> row[2], key[2] = {0., 0.}, inside[2];
      load(row, x.flows.row, at);
      if (!x.is_by_keys) load(key, x.flows.key, at);
      if (x.is_by_keys && h == 0) load(key, x.flows.key, lane() * 2 + own_token);
      load(inside, x.flows.inside, at);
      if (h == 0 && !x.is_by_keys) {
        key[0] += leaving[0];
        key[1] += leaving[1];
      }
      Lanes<double> from = row[0] + row[1], up_to = key[0] + key[1];  // sums of lanes from this on, and up to it
      SYMPOW_UNROLL
      for (int distance = 1; distance < 32; distance *= 2) {
        const Lanes<double> later = shuffle(from, smaller(lane() + distance, Lanes<int>(31))),
                            earlier = shuffle_up(up_to, distance);
        from = where(lane() + distance < 32, from + later, from);
        up_to = where(lane() >= distance, up_to + earlier, up_to);
      }
      const Lanes<double> behind = shuffle(from, smaller(lane() + 1, Lanes<int>(31))), before = shuffle_up(up_to, 1);
      const Lanes<double> rows_behind = where(lane() < 31, behind, 0.), keys_before = where(lane() > 0, before, 0.);

      Lanes<double> through = h == 0 ? outside : Lanes<double>(0.);
      for (int later = own + 1; later < used; later += 32) {
        Lanes<double> one[1] = {0.};
        load(one, x.flows.through, (lane() + (slot * n + later)) * n + own, lane() + later < used);
        through += one[0];
      }
      SYMPOW_UNROLL
      for (int mask = 1; mask < 32; mask *= 2) through += shuffle_xor(through, mask);

      sum[0] += rows_behind + (row[0] + row[1]) + keys_before + (inside[0] + through);
      sum[1] += rows_behind + row[1] + (keys_before + key[0]) + (inside[1] + through);
    }
    SYMPOW_UNROLL
    for (int p = 0; p < 2; ++p) {
      const Lanes<int> t = lane() * 2 + (of.top + p);
      const Lanes<float> result[1] = {convert<float>(sum[p])};
      store(x.d_log_gates.data, x.d_log_gates.at(of.b, t + of.begin, state_head), result, t < of.length);
    }
  }
};

}  // namespace sympow::cuda
