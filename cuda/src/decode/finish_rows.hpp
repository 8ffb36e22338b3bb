// The rest of a decoded row: the parts of the state, the tail and the new tokens.
#pragma once

#include <cstdint>
#include <limits>

#include "channels.hpp"
#include "decode.hpp"
#include "ring.hpp"
#include "row_weights.hpp"

namespace sympow::cuda {

/// A block has one row, token i of a query head. Tokens are counted by age, 0 is the row's own. Logarithms of weights are
/// sums of log gates from the new to the old, in double, so nothing cancels; they are taken relative to the largest term
/// that the row sees, 2^r, and exponentiated once. A score q̂·k̂_j is a sum in float of exact products.
///
///   num = f Σ_slabs + Σ_j w_j v_j,   den = f Σ_slabs + Σ_j w_j,   f = 2^{Γ + ⌈L⌉ - r},   w_j = 2^{Γ_j + P x_j - r} (q̂·k̂_j)^P
///
/// y = num / den, or scale^P 2^{P y + r} num. A row is degenerate where den ≤ noise · A, A = f ‖q̂‖^P · the state's mass (P odd:
/// |den|, and A with Σ_j |w_j|): y = 0, its condition +∞. Else the condition is Σ_j b_ij (‖q‖ ‖k_j‖)^P / |Σ_j s_ij|, finite.
/// A gate of 0 hides the state and all older tokens, whatever they hold; what a row sees and is not finite shows.
/// New tokens are appended to the tail, by the rows of the first query head that shares them.
template <class T>
struct FinishRows {
  static constexpr int warps = 4, threads = 32 * warps, blocks_per_multiprocessor = 4;
  static constexpr int most_tokens = RowTokens::most;  ///< tail and new ones
  static constexpr int shared_bytes = 5 * 4 * most_tokens + 4 * 8 * threads + 3 * 128;
  /// Of `noise`: 16 u, times 4 for sums of about a hundred terms one after the other, each of which may be rounded by u.
  static constexpr float default_noise = 16 * 4 * 0x1p-24f;

  struct Args {
    Rows<const T> queries, keys, values;  ///< of the new tokens
    Rows<const float> log_gates;          ///< natural; null data: none
    Rows<T> y;
    Rows<float> condition;  ///< null data: not asked for
    TailArrays<T> tail;
    States states;
    StateParts parts;
    Heads heads;
    int tokens, slabs, P, d, e;  ///< d: a power of 2, 8 … 256; e: a multiple of 8 up to 256
    bool normalised;
    float noise;
    double scale;  ///< scale^P
  };

  /// A row a block. x: new tokens, y: query heads, z: sequences.
  static constexpr Blocks blocks(int batch, int query_heads, int tokens) { return {tokens, query_heads, batch}; }

  SYMPOW_DEVICE static void run(const Args& x) {
    using namespace block;
    const int w = warp(), i = block_index(0), head = block_index(1), b = block_index(2);
    const int state_head = x.heads.state_of_query(head), key_head = x.heads.key_of_state(state_head);
    const int group = x.heads.query / x.heads.state, tokens = x.tail.count + i + 1;
    const std::int64_t state = std::int64_t{b} * x.heads.state + state_head;
    const std::int64_t row = (state * group + head % group) * x.tokens + i;
    const std::int64_t key_tail = (std::int64_t{b} * x.heads.key + key_head) * x.tail.capacity;
    const Lanes<int> thread = lane() + w * 32;

    // Rows of `width` channels by age, eight channels a lane.
    const auto bring_rows = [&](const auto& fresh, const auto& tail, int width) {
      const int lanes = width / 8, used = threads / lanes * lanes;
      return [&, lanes, used, width](int n, Lanes<Pair<T>>(&octet)[4]) {
        const Lanes<int> age = (thread + n * used) / lanes, t = (tokens - 1) - age, c = thread % lanes * 8;
        const Lanes<bool> here = thread < used && age < tokens, old = t < x.tail.count;
        load(octet, tail, (t + key_tail) * width + c, here && old);
        load(octet, fresh.data, fresh.at(b, Lanes<std::int64_t>(t - x.tail.count), key_head) + c, here && !old);
      };
    };
    const auto bring_keys = bring_rows(x.keys, x.tail.keys, x.d);
    const auto bring_values = bring_rows(x.values, x.tail.values, x.e);
    Ring<4, Pair<T>, 4> keys, values;
    keys.start(bring_keys);
    values.start(bring_values);

    Arena arena;
    const RowTokens of(arena);
    const auto sums = arena.take<float>(8 * threads), state_factor = arena.take<float>(1);
    const auto seen = arena.take<int>(2);
    const auto factor = arena.take<double>(1);

    bring_gates(x, b, state_head, tokens, thread, of.gates);
    Lanes<float> query[8];
    const int key_lanes = x.d / 8, keys_at_once = threads / key_lanes;
    const int value_lanes = x.e / 8, values_at_once = threads / value_lanes;
    {
      Lanes<Pair<T>> octet[4];
      load(octet, x.queries.data, thread % key_lanes * 8 + x.queries.at(b, i, head));
      unpack(query, octet);
    }
    const Lanes<int> query_exponent = normalise(query, key_lanes);

    RowState of_row;
    if (w == 0) of_row = bring_state(x, state, row, sum_over(dot(query, query), key_lanes));

    // Value channels 2 thread, 2 thread + 1 of the state.
    Lanes<float> of_state[2] = {0.f, 0.f};
    Ring<8, float, 2> slabs;
    const auto bring_slab = [&](int n, Lanes<float>(&two)[2]) {
      load(two, x.parts.sums, thread * 2 + (row * x.slabs + n) * x.e, thread * 2 < x.e && n < x.slabs);
    };
    slabs.start(bring_slab);
    slabs.run(x.slabs, bring_slab, [&](int n, const Lanes<float>(&two)[2]) {
      if (n >= x.slabs) return;
      of_state[0] += two[0];
      of_state[1] += two[1];
    });

    keys.run((tokens + keys_at_once - 1) / keys_at_once, bring_keys, [&](int n, const Lanes<Pair<T>>(&octet)[4]) {
      Lanes<float> key[8];
      unpack(key, octet);
      const Lanes<int> key_exponent[1] = {normalise(key, key_lanes)};
      const Lanes<float> score[1] = {sum_over(dot(query, key), key_lanes)};
      const Lanes<float> length[1] = {sum_over(dot(key, key), key_lanes)};
      const Lanes<int> age = thread / key_lanes + n * keys_at_once;
      const Lanes<bool> one = thread % key_lanes == 0 && age < (tokens + 3) / 4 * 4;
      store(of.scores, age, score, one);
      store(of.lengths, age, length, one);
      store(of.exponents, age, key_exponent, one);
    });
    barrier();
    if (w == 0) {
      const RowWeights weights = row_weights(of, tokens, x.P, of_row);
      const Lanes<float> f[1] = {weights.state};
      const Lanes<int> sees[2] = {weights.sees_state, weights.tokens};
      const Lanes<double> end[1] = {end_row(x, b, i, head, weights, query_exponent)};
      store(state_factor, lane(), f, lane() < 1);
      store(seen, lane(), sees, lane() < 1);
      store(factor, lane(), end, lane() < 1);
    }
    if (w == warps - 1) append(x, b, i, head);
    barrier();

    Lanes<int> sees[2];
    load(sees, seen, Lanes<int>(0));
    const bool sees_state = uniform(sees[0]) == 1;
    const int seen_tokens = uniform(sees[1]);
    Lanes<float> sum[8];
    SYMPOW_UNROLL
    for (int c = 0; c < 8; ++c) sum[c] = 0.f;
    const int turns = (seen_tokens + values_at_once - 1) / values_at_once;
    values.run(turns, bring_values, [&](int n, const Lanes<Pair<T>>(&octet)[4]) {
      Lanes<float> value[8], weight[1] = {0.f};
      unpack(value, octet);
      const Lanes<int> age = thread / value_lanes + n * values_at_once;
      const Lanes<bool> here = thread < values_at_once * value_lanes && age < seen_tokens;
      load(weight, of.weights, age, here);
      SYMPOW_UNROLL
      for (int c = 0; c < 8; ++c) sum[c] += where(here, weight[0] * value[c], 0.f);
    });
    SYMPOW_UNROLL
    for (int half = 0; half < 2; ++half) {
      const Lanes<float> four[4] = {sum[4 * half], sum[4 * half + 1], sum[4 * half + 2], sum[4 * half + 3]};
      store(sums, thread * 4 + half * 4 * threads, four);
    }
    barrier();

    const Lanes<bool> writes = thread * 2 < x.e;
    const Lanes<int> entry = thread / 4 * 4 + thread % 2 * 2 + thread % 4 / 2 * (4 * threads);  // of the youngest token
    Lanes<float> total[2] = {0.f, 0.f}, f[1];
    for (int n = 0; n < values_at_once; ++n) {
      Lanes<float> two[2] = {0.f, 0.f};
      load(two, sums, entry + n * value_lanes * 4, writes);
      total[0] += two[0];
      total[1] += two[1];
    }
    load(f, state_factor, Lanes<int>(0));
    Lanes<double> end[1];
    load(end, factor, Lanes<int>(0));
    SYMPOW_UNROLL
    for (int c = 0; c < 2; ++c) {
      if (sees_state) total[c] += f[0] * of_state[c];
      total[c] = convert<float>(convert<double>(total[c]) * end[0]);
    }
    const Lanes<Pair<T>> result[1] = {pack<T>(total[0], total[1])};
    store(x.y.data, thread * 2 + x.y.at(b, std::int64_t{i}, head), result, writes);
  }

 private:
  static constexpr float infinity = std::numeric_limits<float>::infinity(), most = std::numeric_limits<float>::max();

  SYMPOW_DEVICE static Lanes<float> dot(const Lanes<float> (&x)[8], const Lanes<float> (&y)[8]) {
    return ((x[0] * y[0] + x[1] * y[1]) + (x[2] * y[2] + x[3] * y[3])) +
           ((x[4] * y[4] + x[5] * y[5]) + (x[6] * y[6] + x[7] * y[7]));
  }

  /// log γ by age.
  SYMPOW_DEVICE static void bring_gates(const Args& x, int b, int state_head, int tokens, Lanes<int> thread,
                                        block::Shared<float> gates) {
    using namespace block;
    Lanes<float> gate[1] = {0.f};
    if (x.log_gates.data.data) {
      const std::int64_t tail = (std::int64_t{b} * x.heads.state + state_head) * x.tail.capacity;
      const Lanes<int> t = (tokens - 1) - thread;
      const Lanes<std::int64_t> fresh = t - x.tail.count;
      load(gate, x.tail.log_gates, t + tail, t >= 0 && t < x.tail.count);
      load(gate, x.log_gates.data, x.log_gates.at(b, fresh, state_head), t >= x.tail.count);
    }
    store(gates, thread, gate);
  }

  SYMPOW_DEVICE static RowState bring_state(const Args& x, std::int64_t state, std::int64_t row,
                                            Lanes<float> query_length) {
    using namespace block;
    Lanes<double> level[1];
    Lanes<float> mass[1], sum = 0.f;
    load(level, x.states.level, Lanes<std::int64_t>(state));
    load(mass, x.states.mass, Lanes<std::int64_t>(state));
    for (int from = 0; from < x.slabs; from += 32) {
      Lanes<float> slab[1] = {0.f};
      load(slab, x.parts.normaliser, lane() + (row * x.slabs + from), lane() + from < x.slabs);
      sum += slab[0];
    }
    return {level[0], mass[0], sum_over(sum, 32), query_length};
  }

  /// What the row's sum is multiplied by. Comparisons fail towards NaN. Writes the condition.
  SYMPOW_DEVICE static Lanes<double> end_row(const Args& x, int b, int i, int head, const RowWeights& row,
                                             Lanes<int> query_exponent) {
    using namespace block;
    const Lanes<float> size = absolute(row.sum), noise = row.noise * x.noise;
    const Lanes<bool> degenerate =
        (x.P % 2 == 0 ? row.sum : size) <= noise && noise < infinity && Lanes<bool>(x.normalised);
    if (x.condition.data.data) {
      const Lanes<float> ratio = where(row.absolute == 0.f, 0.f, row.absolute / size);
      const Lanes<float> result[1] = {where(degenerate, infinity, where(ratio > most, most, ratio))};
      store(x.condition.data, lane() + x.condition.at(b, std::int64_t{i}, head), result, lane() < 1);
    }
    if (x.normalised) return where(degenerate, 0., convert<double>(1.f / row.sum));
    const Lanes<double> exponent = row.r + query_exponent * x.P, whole = floor(exponent);
    const Lanes<std::int64_t> bits = convert<std::int64_t>(
        where(whole < -1022., -1022., where(whole > 1023., 1023., whole)) + 1023.) << 52;
    return convert<double>(exp2(convert<float>(exponent - whole))) * bit_cast<double>(bits) * x.scale;
  }

  /// Copies token i to the tail, in the blocks of the first query head that shares its key head, or its gates.
  SYMPOW_DEVICE static void append(const Args& x, int b, int i, int head) {
    using namespace block;
    const int state_head = x.heads.state_of_query(head), key_head = x.heads.key_of_state(state_head);
    const int t = x.tail.count + i;
    const auto copy = [&](const auto& fresh, const auto& tail, int width) {
      const std::int64_t at = ((std::int64_t{b} * x.heads.key + key_head) * x.tail.capacity + t) * width;
      Lanes<Pair<T>> octet[4];
      load(octet, fresh.data, lane() * 8 + fresh.at(b, std::int64_t{i}, key_head), lane() * 8 < width);
      store(tail, lane() * 8 + at, octet, lane() * 8 < width);
    };
    if (head % (x.heads.query / x.heads.key) == 0) {
      copy(x.keys, x.tail.keys, x.d);
      copy(x.values, x.tail.values, x.e);
    }
    if (head % (x.heads.query / x.heads.state) == 0 && x.log_gates.data.data) {
      const std::int64_t at = (std::int64_t{b} * x.heads.state + state_head) * x.tail.capacity + t;
      Lanes<float> gate[1];
      load(gate, x.log_gates.data, lane() + x.log_gates.at(b, std::int64_t{i}, state_head), lane() < 1);
      store(x.tail.log_gates, lane() + at, gate, lane() < 1);
    }
  }
};

}  // namespace sympow::cuda
