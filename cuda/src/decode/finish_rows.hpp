// The rest of a decoded row: the parts of the state, the tail and the new tokens.
#pragma once

#include <cstdint>
#include <limits>

#include "../layout/turns.hpp"
#include "channels.hpp"
#include "decode.hpp"
#include "ring.hpp"
#include "row_weights.hpp"

namespace sympow::cuda {

/// A block has one row, token i of a query head. Tokens are counted by age, 0 is the row's own. Logarithms of weights
/// are sums of log gates from the young to the old, in double, so nothing cancels; they are taken relative to the
/// largest term that the row sees, 2^r, and exponentiated once. A score q̂·k̂_j is a sum in float of exact products.
///
///   f = 2^{Γ + ⌈L⌉ - r},   w_j = 2^{Γ_j + P x_j - r} (q̂·k̂_j)^P
///   num = f Σ_slabs + Σ_j w_j v_j,   den = f Σ_slabs + Σ_j w_j
///
/// Means are num / den, sums scale^P 2^{P y + r} num. A mean is degenerate where den ≤ noise · A, A = f ‖q̂‖^P times
/// the mass of the state (P odd: |den|, and Σ_j |w_j| more in A): it is 0, its condition +∞. Other conditions are
/// Σ_j b_ij (‖q‖ ‖k_j‖)^P / |Σ_j s_ij|. A gate of 0 hides the state and all older tokens, whatever they hold; what a
/// row sees and is not finite shows. Rows of an inactive sequence are not written.
///
/// Cost: 2 n (d + e) floating-point operations for n tokens; 2 n (d + e) bytes of them, 4 (e + 1) a slab.
template <class T, int d>
struct FinishRows {
  static_assert(d >= 8 && d <= 256 && (d & (d - 1)) == 0);
  static constexpr int warps = 4, threads = 32 * warps, blocks_per_multiprocessor = sizeof(T) == 2 ? 4 : 3;
  static constexpr int half_of_sums = 4 * threads + 16;  ///< the halves of octets meet different banks
  static constexpr int shared_bytes = 4 * RowTokens::arrays * RowTokens::most + 4 * 2 * half_of_sums + 3 * 128;
  static constexpr int most_tokens = RowTokens::most;  ///< tail and new ones
  /// For `noise`: 16 u, times 4 as sums of about a hundred terms, one after the other, may each be off by u.
  static constexpr float default_noise = 16 * 4 * 0x1p-24f;

  struct Args {
    Rows<const T> queries;
    TailArrays<T> tail;  ///< with the new tokens, which counts leave out
    States states;
    StateParts parts;
    Rows<T> y;
    Rows<float> condition;  ///< null data: not asked for
    Heads heads;
    int tokens, slabs, P, e;  ///< e: a multiple of 8 up to 256
    bool normalised;
    float noise;
    double scale;        ///< scale^P
    Rotary rotary = {};  ///< of tokens from the last fold on
  };

  /// A row a block. x: new tokens, y: query heads, z: sequences.
  static constexpr Blocks blocks(int batch, int query_heads, int tokens) { return {tokens, query_heads, batch}; }

  SYMPOW_DEVICE static void run(const Args& x) {
    using namespace block;
    const int w = warp(), i = block_index(0), head = block_index(1), b = block_index(2);
    const TailSlot slot = x.tail.slots[b];
    if (!slot.is_active()) return;
    const int state_head = x.heads.state_of_query(head), key_head = x.heads.key_of_state(state_head);
    const int group = x.heads.query / x.heads.state, tokens = slot.count + i + 1;
    const std::int64_t state = std::int64_t{slot.index} * x.heads.state + state_head;
    const std::int64_t row = ((std::int64_t{b} * x.heads.state + state_head) * group + head % group) * x.tokens + i;
    const std::int64_t newest_key =
        (std::int64_t{slot.index} * x.heads.key + key_head) * x.tail.capacity + (tokens - 1);
    const std::int64_t newest_gate = state * x.tail.capacity + (tokens - 1);
    const Lanes<int> thread = lane() + w * 32;

    // Keys and values of the youngest tokens, eight channels a lane.
    constexpr int key_lanes = d / 8, keys_at_once = threads / key_lanes;
    const int value_lanes = x.e / 8, values_at_once = threads / value_lanes;
    const Lanes<int> key_age = thread / key_lanes, value_age = thread / value_lanes;
    const Lanes<std::int64_t> key_at = (newest_key - key_age) * d + thread % key_lanes * 8;
    const Lanes<std::int64_t> value_at = (newest_key - value_age) * x.e + thread % value_lanes * 8;
    const auto value_here = [&](int n, int of) {
      return thread < values_at_once * value_lanes && value_age + n * values_at_once < of;
    };
    const auto bring_key = [&](int n, Lanes<Pair<T>>(&octet)[4]) {
      load(octet, x.tail.keys, key_at - std::int64_t{n} * keys_at_once * d, key_age + n * keys_at_once < tokens);
    };
    const auto bring_value = [&](int n, Lanes<Pair<T>>(&octet)[4]) {
      load(octet, x.tail.values, value_at - std::int64_t{n} * values_at_once * x.e, value_here(n, tokens));
    };
    Lanes<Pair<T>> query_octet[4];
    load(query_octet, x.queries.data, thread % key_lanes * 8 + x.queries.at(b, std::int64_t{i}, head));
    Ring<4, Pair<T>, 4> keys, values;
    keys.start(bring_key);
    Lanes<float> gate[1] = {0.f};
    if (x.tail.log_gates.data) load(gate, x.tail.log_gates, newest_gate - thread, thread < tokens);
    values.start(bring_value);

    Arena arena;
    const RowTokens of(arena);
    const auto sums = arena.take<float>(2 * half_of_sums), state_factor = arena.take<float>(1);
    const auto seen = arena.take<int>(2);
    const auto factor = arena.take<double>(1);
    store(of.gates, thread, gate);

    Lanes<float> query[8];
    unpack(query, query_octet);
    if (x.rotary.rates.data)
      x.rotary.turn(query, d, thread % key_lanes, d / 16, slot.index, std::int64_t{tokens - 1}, key_head, true);
    const Lanes<int> query_exponent = normalise(query, key_lanes);
    const Lanes<float> query_length = sum_over(dot(query, query), key_lanes);
    RowState of_row;
    if (w == 0) of_row = bring_state(x, state, row, query_length);

    // Value channels 2 thread, 2 thread + 1 of the state.
    Lanes<float> of_state[2] = {0.f, 0.f};
    Ring<8, float, 2> slabs;
    const auto bring_slab = [&](int n, Lanes<float>(&two)[2]) {
      load(two, x.parts.sums, thread * 2 + (row * x.slabs + n) * x.e, thread * 2 < x.e && n < x.slabs);
    };
    if (w * 64 < x.e) {
      slabs.start(bring_slab);
      slabs.run(x.slabs, bring_slab, [&](int n, const Lanes<float>(&two)[2]) {
        if (n >= x.slabs) return;
        of_state[0] += two[0];
        of_state[1] += two[1];
      });
    }

    keys.run((tokens + keys_at_once - 1) / keys_at_once, bring_key, [&](int n, const Lanes<Pair<T>>(&octet)[4]) {
      Lanes<float> key[8];
      unpack(key, octet);
      const Lanes<int> key_exponent = normalise(key, key_lanes);
      const Lanes<float> score = sum_over(dot(query, key), key_lanes);
      const Lanes<int> shift = exponent(absolute(score));
      const Lanes<float> powers[1] = {power(score * power_of_two(0 - shift), x.P)};
      const Lanes<int> exponents[1] = {key_exponent * x.P}, shifts[1] = {shift * x.P};
      const Lanes<int> age = key_age + n * keys_at_once;
      const Lanes<bool> one = thread % key_lanes == 0 && age < (tokens + 3) / 4 * 4;
      store(of.powers, age, powers, one);
      store(of.exponents, age, exponents, one);
      store(of.shifts, age, shifts, one);
      if (x.condition.data.data) {
        const Lanes<float> length[1] = {log_power(sum_over(dot(key, key), key_lanes) * query_length, x.P)};
        store(of.lengths, age, length, one);
      }
    });
    barrier();
    if (w == 0) {
      const RowWeights weights = row_weights(of, tokens, x.P % 2 == 1, x.condition.data.data != nullptr, of_row);
      const Lanes<float> f[1] = {weights.state};
      const Lanes<int> sees[2] = {weights.sees_state, weights.tokens};
      const Lanes<double> end[1] = {end_row(x, b, i, head, weights, query_exponent)};
      store(state_factor, lane(), f, lane() < 1);
      store(seen, lane(), sees, lane() < 1);
      store(factor, lane(), end, lane() < 1);
    }
    barrier();

    Lanes<int> sees[2];
    load(sees, seen, Lanes<int>(0));
    const bool sees_state = uniform(sees[0]) == 1;
    const int seen_tokens = uniform(sees[1]);
    Lanes<float> sum[8];
    SYMPOW_UNROLL
    for (int c = 0; c < 8; ++c) sum[c] = 0.f;
    const int turns = (seen_tokens + values_at_once - 1) / values_at_once;
    values.run(turns, bring_value, [&](int n, const Lanes<Pair<T>>(&octet)[4]) {
      Lanes<float> value[8], weight[1] = {0.f};
      unpack(value, octet);
      const Lanes<bool> here = value_here(n, seen_tokens);
      load(weight, of.weights, value_age + n * values_at_once, here);
      SYMPOW_UNROLL
      for (int c = 0; c < 8; ++c) sum[c] += where(here, weight[0] * value[c], 0.f);
    });
    SYMPOW_UNROLL
    for (int half = 0; half < 2; ++half) {
      const Lanes<float> four[4] = {sum[4 * half], sum[4 * half + 1], sum[4 * half + 2], sum[4 * half + 3]};
      store(sums, thread * 4 + half * half_of_sums, four);
    }
    barrier();
    if (w * 64 >= x.e) return;

    const Lanes<bool> writes = thread * 2 < x.e;
    const Lanes<int> entry = thread / 4 * 4 + thread % 2 * 2 + thread % 4 / 2 * half_of_sums;
    Lanes<float> total[2] = {0.f, 0.f}, f[1];
    for (int n = 0; n < values_at_once; ++n) {
      Lanes<float> two[2] = {0.f, 0.f};
      load(two, sums, entry + n * value_lanes * 4, writes);
      total[0] += two[0];
      total[1] += two[1];
    }
    Lanes<double> end[1];
    load(f, state_factor, Lanes<int>(0));
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
  /// log2 of ‖x‖^P, of ‖x‖².
  SYMPOW_DEVICE static Lanes<float> log_power(Lanes<float> square, int P) {
    return block::log2(square) * (.5f * static_cast<float>(P));
  }

  SYMPOW_DEVICE static RowState bring_state(const Args& x, std::int64_t state, std::int64_t row,
                                            Lanes<float> query_length) {
    using namespace block;
    Lanes<double> level[1];
    Lanes<float> mass[1], sum = 0.f;
    load(level, x.states.level, Lanes<std::int64_t>(state));
    load(mass, x.states.mass, Lanes<std::int64_t>(state));
    SYMPOW_ROLL
    for (int from = 0; from < x.slabs; from += 32) {
      Lanes<float> slab[1] = {0.f};
      load(slab, x.parts.normaliser, lane() + (row * x.slabs + from), lane() + from < x.slabs);
      sum += slab[0];
    }
    return {level[0], mass[0] * exp2(log_power(query_length, x.P)), sum_over(sum, 32)};
  }

  /// What the row's sum is multiplied by. Comparisons fail towards NaN. Writes the condition.
  SYMPOW_DEVICE static Lanes<double> end_row(const Args& x, int b, int i, int head, const RowWeights& row,
                                             Lanes<int> query_exponent) {
    using namespace block;
    const Lanes<float> size = absolute(row.sum), noise = row.noise * x.noise;
    const Lanes<bool> finite = size < infinity && noise < infinity;
    const Lanes<bool> degenerate = finite && (x.P % 2 == 0 ? row.sum : size) <= noise && Lanes<bool>(x.normalised);
    if (x.condition.data.data) {
      const Lanes<float> ratio = where(row.absolute == 0.f, 0.f, row.absolute / size);
      const Lanes<float> result[1] = {where(degenerate, infinity, where(ratio > most, most, ratio))};
      store(x.condition.data, lane() + x.condition.at(b, std::int64_t{i}, head), result, lane() < 1);
    }
    if (x.normalised) {
      const Lanes<float> inverse = where(size < infinity, 1.f / row.sum, row.sum - row.sum);
      return where(degenerate, 0., convert<double>(inverse));
    }
    const Lanes<double> exponent = row.r + query_exponent * x.P, whole = floor(exponent);
    const Lanes<std::int64_t> bits =
        convert<std::int64_t>(where(whole < -1022., -1022., where(whole > 1023., 1023., whole)) + 1023.) << 52;
    return convert<double>(exp2(convert<float>(exponent - whole))) * bit_cast<double>(bits) * x.scale;
  }
};

}  // namespace sympow::cuda
