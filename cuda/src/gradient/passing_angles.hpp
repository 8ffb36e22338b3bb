// What passes through a whole chunk and turns: couplings of the keys before it with the rows after it.
#pragma once

#include "../layout/blocks.hpp"
#include "angle_rows.hpp"
#include "state_part.hpp"

namespace sympow::cuda {

/// Writes `passing` of AngleArrays and of its flows, for a chunk and key head: of pair u, with γ = 2^{G_c},
///   gauge_u + γ Σ_ij f_iju = gauge_u - γ ⟨H, L_u S⟩,   (L_u S)_m = Σ_p ± S_{m with the partner of i_p in its place}
/// over the P channels i_p of monomial m that are in the pair, - of its first and + of its second, S the state before
/// the chunk and H the adjoint of the one after it, multinomial coefficients once; of all states of the key head in
/// order. γ is 0 where a gate of 0 lies between.
///
/// A block of eight warps has a chunk and key head. Lanes in groups have a monomial, each 8 channels of its row. Of a
/// state R e (2 + 2 P) bytes are read, of floats and of split states twice as many. Roundings: those of both states;
/// sums of a row in float, of rows in double.
template <class T, int P, int d>
struct PassingAngles {
  static constexpr int warps = 8, threads = 32 * warps, blocks_per_multiprocessor = 2, most_rows = 8, pairs = d / 2;
  static constexpr int shared_bytes = 8 * warps * most_rows * pairs;

  struct Args {
    StatesOfChunks<T> states, adjoints;
    Global<const double> total;  ///< G_c of ChunkArrays
    Global<const double> gauge;  ///< [B, Hk, d/2]: what a turn of all tokens changes (Gauges); null: 0
    AngleArrays angles;
    Sequences sequences;
    Heads heads;
    int e;
  };

  static Blocks blocks(const Sequences& sequences, const Heads& heads) {
    return {std::int64_t{sequences.batch} * sequences.most_chunks(), heads.key};
  }

  SYMPOW_DEVICE static void run(const Args& x) {
    using namespace block;
    const int most_chunks = x.sequences.most_chunks(), b = block_index(0) / most_chunks;
    const int n = block_index(0) % most_chunks, w = warp(), head = block_index(1);
    const Sequence sequence = x.sequences[b];
    if (n >= sequence.chunks) return;
    const OctetLanes lanes(x.e);
    Arena arena;
    const auto all = arena.take<double>(warps * most_rows * pairs), sums = all.after(w * most_rows * pairs);
    for (int from = 0; from < most_rows * pairs; from += 32) {
      const Lanes<double> zero[1] = {0.};
      store(sums, lane() + from, zero);
    }
    warp_barrier();
    const std::int64_t own = sequence.slot + n, slot = std::int64_t{head} * x.sequences.slots + own;
    const int states_of_key = x.heads.state / x.heads.key;
    for (int state = 0; state < states_of_key; ++state)
      add(x, std::int64_t{head * states_of_key + state} * x.sequences.slots + own, lanes, sums, w);
    barrier();
    if (w > 0) return;

    const int left = sequence.length - n * x.sequences.chunk;
    const int last = (left < x.sequences.chunk ? left : x.sequences.chunk) - 1;
    const std::int64_t begin = sequence.first + std::int64_t{n} * x.sequences.chunk;
    const Rotary& rotary = x.angles.rotary;
    Lanes<double> path[2] = {0., 0.}, flow = 0.;
    const auto path_at = [&](std::int64_t t) { return load_one(rotary.paths.data, rotary.paths.at(b, t, head)); };
    path[1] = path_at(begin + last);
    if (n > 0) path[0] = path_at(begin - 1);
    for (int from = 0; from < pairs; from += 32) {
      const Lanes<int> u = lane() + from;
      Lanes<double> sum[1] = {0.}, rate[1] = {0.};
      if (x.gauge.data) load(sum, x.gauge, u + (std::int64_t{b} * x.heads.key + head) * pairs, u < pairs);
      for (int v = 0; v < warps * most_rows; ++v) sum[0] += load_one(all, u % pairs + v * pairs);
      load(rate, rotary.rates, u + std::int64_t{0}, u < pairs);
      flow += where(u < pairs, sum[0] * rate[0], Lanes<double>(0.));
      sum[0] = sum[0] * (path[1] - path[0]);
      store(x.angles.passing, u + slot * pairs, sum, u < pairs);
    }
    SYMPOW_UNROLL
    for (int mask = 1; mask < 32; mask *= 2) flow += shuffle_xor(flow, mask);
    const Lanes<double> one[1] = {flow};
    store(x.angles.flows.passing, lane() + slot, one, lane() == 0);
  }

 private:
  /// Of one state: to the sums of each row of lanes.
  SYMPOW_DEVICE static void add(const Args& x, std::int64_t slot, const OctetLanes& lanes, block::Shared<double> sums,
                                int w) {
    using namespace block;
    constexpr int D = monomial_count(P, d), rows = state_rows(P, d);
    const double total = uniform(load_one(x.total, slot));
    const double level = x.states.level(slot), adjoint_level = x.adjoints.level(slot);
    if (total == -infinity || level == -infinity || adjoint_level == -infinity) return;
    const Lanes<double> unit = wide_two_to(x.states.unit(slot, level) + x.adjoints.unit(slot, adjoint_level) + total);
    const bool halves = x.angles.rotary.halves;
    for (int from = w * lanes.rows; from < D; from += warps * lanes.rows) {
      const Lanes<int> m = lanes.row + from;
      const Lanes<bool> exists = m < D;
      const auto own = Monomial<P>::template at<d>(d, m);
      const Lanes<std::int64_t> row = row_of(own) + slot * rows;
      const Octet adjoint(x.adjoints, row, lanes, x.e, exists);
      SYMPOW_UNROLL
      for (int p = 0; p < P; ++p) {
        const Lanes<int> channel = own.channel[p];
        const Lanes<bool> is_first = halves ? channel < d / 2 : channel % 2 == 0;
        const Lanes<int> partner = halves ? channel ^ (d / 2) : channel ^ 1;
        const Lanes<int> pair = halves ? channel % (d / 2) : channel / 2;
        const Monomial<P> turned = replace(own, p, partner);
        const Octet state(x.states, row_of(turned) + slot * rows, lanes, x.e, exists);
        const Lanes<float> product = lanes.reduce(adjoint.times(state), plus);
        const Lanes<double> part = convert<double>(where(is_first, product, -product) / turned.coefficient()) * unit;
        Lanes<double> one[1] = {0.};
        const Lanes<int> at = lanes.row * pairs + pair;
        const Lanes<bool> adds = exists && lanes.octet == 0;
        load(one, sums, at, adds);
        one[0] += part;
        store(sums, at, one, adds);
      }
    }
  }

  /// Eight channels of a row of a state, and of the first lane its normaliser.
  struct Octet {
    Lanes<float> entries[8], whole[1] = {0.f};

    SYMPOW_DEVICE Octet(const StatesOfChunks<T>& state, Lanes<std::int64_t> row, const OctetLanes& lanes, int e,
                        Lanes<bool> exists) {
      const OctetOfRow octet = state.octet(row * e + lanes.octet * 8, exists && lanes.octet * 8 < e);
      SYMPOW_UNROLL
      for (int c = 0; c < 8; ++c) entries[c] = octet.entries[c];
      load(whole, state.prefixes.whole, row, exists && lanes.octet == 0);
    }
    SYMPOW_DEVICE Lanes<float> times(const Octet& x) const {
      Lanes<float> sum = whole[0] * x.whole[0];
      SYMPOW_UNROLL
      for (int c = 0; c < 8; ++c) sum += entries[c] * x.entries[c];
      return sum;
    }
  };
  SYMPOW_DEVICE static Lanes<float> plus(Lanes<float> a, Lanes<float> b) { return a + b; }

  /// The monomial with another channel in the place of the p-th, in order.
  SYMPOW_DEVICE static Monomial<P> replace(const Monomial<P>& m, int p, Lanes<int> channel) {
    Monomial<P> result = m;
    result.channel[p] = channel;
    const auto order = [&](int i, int j) {
      const Lanes<int> a = result.channel[i], b = result.channel[j];
      result.channel[i] = smaller(a, b);
      result.channel[j] = larger(a, b);
    };
    SYMPOW_UNROLL
    for (int pass = 0; pass < P - 1; ++pass) SYMPOW_UNROLL
    for (int i = 0; i + 1 < P; ++i) order(i, i + 1);
    return result;
  }
  /// Its row of a state (state_rows.hpp).
  SYMPOW_DEVICE static Lanes<int> row_of(const Monomial<P>& m) {
    const Lanes<int> last = m.channel[P - 1], octet = last / 8;
    if constexpr (P == 1) {
      return last;
    } else {
      Lanes<int> stages = 0;  // of earlier octets
      for (int b = 0; b < d / 8 - 1; ++b) stages = block::where(octet > b, stages + stages_of_octet(P, b), stages);
      if constexpr (P == 2) {
        return (stages + m.channel[0] / 8) * stage_rows + m.channel[0] % 8 * 8 + last % 8;
      } else {
        Lanes<int> factor = 0, from = 0;
        SYMPOW_UNROLL
        for (int p = 0; p < P - 1; ++p) {
          factor = factor + count_before(P - 1 - p, octet * 8 + 8, from, m.channel[p]);
          from = m.channel[p];
        }
        return (stages + factor / 8) * stage_rows + last % 8 * 8 + factor % 8;
      }
    }
  }
};

}  // namespace sympow::cuda
