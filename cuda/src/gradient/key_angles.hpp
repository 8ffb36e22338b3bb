// What comes back to angles through keys, from sums of their gradients.
#pragma once

#include "angle_rows.hpp"

namespace sympow::cuda {

/// Of the sums that KeyGradients has kept: `key` and `later` of the flows of AngleArrays, and `keys`.
///
/// A block of four warps has 64 tokens of a key head. Of a token its key is read, and 4 d + 8 bytes of each of the two.
template <class T, int d>
struct KeyAngles {
  static constexpr int warps = 4, threads = 32 * warps, rows = block_tokens, blocks_per_multiprocessor = 4;
  static constexpr int shared_bytes = static_cast<int>(sizeof(T)) * rows * d + AngleRows<T, d>::bytes;

  struct Args {
    Rows<const T> keys;  ///< k̂
    RowArrays of_rows;
    AngleArrays angles;
    Sequences sequences;
    Heads heads;
  };

  static Blocks blocks(const Sequences& sequences, const Heads& heads) {
    return {TokenBlock::count(sequences), heads.key};
  }

  SYMPOW_DEVICE static void run(const Args& x) {
    using namespace block;
    const TokenBlock of(x.sequences, block_index(0));
    if (of.top >= of.length) return;
    const int w = warp(), head = block_index(1), own = 16 * w, end = of.top + rows - 1;
    const std::int64_t slot = std::int64_t{head} * x.sequences.slots + of.slot;
    Arena arena;
    const auto keys = arena.take<T>(rows * d);
    const auto for_angles = arena.take<double>(AngleRows<T, d>::bytes / 8);
    const TileCopy<T, d, rows, warps> copy(w);
    copy.bring(keys, 0, x.keys.data, copy.source(x.keys.at(of.b, of.begin + of.top, head), x.keys.token), x.keys.token,
               0, of.length - of.top, true);
    cp_async_commit();
    const AngleRows<T, d> angles(x.angles.rotary, keys, own, for_angles, w);
    angles.clear();
    cp_async_wait<0>();
    barrier();

    const Lanes<int> shift =
        load_one(x.of_rows.unit, std::int64_t{head} * (x.heads.query / x.heads.key) * x.sequences.slots + of.slot);
    const auto path = [&](Lanes<int> i) { return path_of(x.angles.rotary, of, head, smaller(i, of.length - 1)); };
    const auto add = [&](const KeptSums& kept, Global<double> to, Lanes<double> behind, const auto& begin) {
      Lanes<float> sum[std::size_t{d / 8}][4];
      Lanes<double> units[2], turned[2], total[2];
      const auto row_of = [&](int g) {
        return Lanes<std::int64_t>(lane() / 4 + (slot * x.sequences.chunk + of.top + own + 8 * g));
      };
      SYMPOW_UNROLL
      for (int g = 0; g < 2; ++g) {
        units[g] = -wide_two_to(load_one(kept.units, row_of(g)) + convert<double>(shift));
        turned[g] = behind - begin(g);
        SYMPOW_UNROLL
        for (int o = 0; o < d / 8; ++o) {
          Lanes<float> two[2];
          load(two, kept.sums, row_of(g) * d + (lane() % 4 * 2 + 8 * o));
          sum[o][2 * g] = two[0];
          sum[o][2 * g + 1] = two[1];
        }
      }
      angles.add(total, sum, units, turned);
      SYMPOW_UNROLL
      for (int g = 0; g < 2; ++g) {
        const Lanes<double> one[1] = {total[g]};
        store(to, row_of(g), one, lane() % 4 == 0);
      }
    };
    add(x.angles.later_rows, x.angles.flows.key, path(end),
        [&](int g) { return path(lane() / 4 + (of.top + own + 8 * g)); });
    if (x.angles.later_chunks.sums.data)
      add(x.angles.later_chunks, x.angles.flows.later, path(of.length - 1), [&](int) { return path(end); });
    angles.store_rates(x.angles.keys, (slot * (x.sequences.chunk / rows) + of.top / rows) * (d / 2), w);
  }
};

}  // namespace sympow::cuda
