// What comes back to the scale, by blocks of rows.
#pragma once

#include "../layout/blocks.hpp"
#include "../layout/gradients.hpp"
#include "block_sum.hpp"
#include "unit_rows.hpp"

namespace sympow::cuda {

/// Writes factor Σ_i dy_i·y_i of each block of 64 rows of a query head. Rows that are not normalised are homogeneous in
/// the scale, of degree P: with the factor P / scale these add up to its gradient. Where the factor is 0, 0: nothing is
/// read.
///
/// A block of four warps has 64 tokens. Of a token 2 e channels are read. Roundings: those of y; products of 8 channels
/// in float, their sums in double.
template <class T>
struct ScaleProducts {
  static constexpr int warps = 4, threads = 32 * warps, blocks_per_multiprocessor = 8, shared_bytes = 128;

  struct Args {
    Rows<const T> rows, d_rows;
    Global<double> products;  ///< of query head h, block n of N of a slot at (h slots + slot) N + n
    Sequences sequences;
    int e;
    double factor;
  };

  static Blocks blocks(const Sequences& sequences, const Heads& heads) {
    return {TokenBlock::count(sequences), heads.query};
  }

  SYMPOW_DEVICE static void run(const Args& x) {
    using namespace block;
    const TokenBlock of(x.sequences, block_index(0));
    if (of.top >= of.length) return;
    const int head = block_index(1), w = warp();
    const OctetLanes lanes(x.e);
    constexpr int rows = block_tokens / warps;
    Lanes<double> sum = 0.;
    for (int from = 0; from < rows && x.factor != 0; from += lanes.rows) {
      const Lanes<int> i = lanes.row + (of.top + w * rows + from);
      const Lanes<bool> exists = i < of.length && lanes.octet * 8 < x.e;
      const Lanes<std::int64_t> t = i + of.begin;
      const OctetOfRow row(x.rows.data, x.rows.at(of.b, t, head) + lanes.octet * 8, exists);
      const OctetOfRow d_row(x.d_rows.data, x.d_rows.at(of.b, t, head) + lanes.octet * 8, exists);
      Lanes<float> product = 0.f;
      SYMPOW_UNROLL
      for (int c = 0; c < 8; ++c) product += row.entries[c] * d_row.entries[c];
      sum += convert<double>(product);
    }
    Lanes<double> all[1] = {block_sum<warps>(sum, w)};
    if (w != 0) return;
    all[0] = all[0] * x.factor;
    const std::int64_t slot = std::int64_t{head} * x.sequences.slots + of.slot;
    store(x.products, Lanes<std::int64_t>(lane() + (slot * (x.sequences.chunk / block_tokens) + of.top / block_tokens)),
          all, lane() == 0);
  }
};

}  // namespace sympow::cuda
