// Weights of tokens, from keys and gates: what TokenArrays and ChunkArrays say of a chunk without the state before it.
#pragma once

#include "../layout/blocks.hpp"
#include "../layout/chunks.hpp"
#include "../layout/exponents.hpp"
#include "../layout/turns.hpp"

namespace sympow::cuda {

/// Writes TokenArrays, and `total`, `end`, `own_mass` of ChunkArrays, for all slots in use. Tokens of a slot
/// beyond its sequence have the weight 0 and the gate 1. Where a key is not finite, or a gate NaN, u is NaN: so levels
/// are NaN from that token on, up to a reset.
///
/// With rotary, keys turn first, are rounded to T and written, once for all state heads that share them; weights are
/// those of the written keys, which all other kernels read.
///
/// d: a multiple of 8 up to 128, of rotary a power of 2; keys aligned to 16 bytes. A block of eight warps makes a
/// chunk, 256 tokens at a time, a lane a token. Of a token and head its d channels and 4 bytes are read, 36 written,
/// and 8 of them read again; with rotary 8 more read, and d channels written of a token and key head.
template <class T>
struct Weights {
  static constexpr int warps = 8, threads = 32 * warps, blocks_per_multiprocessor = sizeof(T) == 2 ? 4 : 2;
  static constexpr int shared_bytes = 4 * 128;

  struct Args {
    Rows<const T> keys;
    Rows<const float> log_gates;  ///< natural logarithms, by state heads; data null: all gates are 1
    Sequences sequences;
    Heads heads;
    int d, power;
    TokenArrays tokens;
    ChunkArrays chunks;
    Rotary rotary = {};
    Rows<T> turned = {};  ///< keys; as many as `keys` has
  };

  static Blocks blocks(const Sequences& sequences, const Heads& heads) {
    return {std::int64_t{sequences.batch} * sequences.most_chunks(), heads.state};
  }

  SYMPOW_DEVICE static void run(const Args& args) {
    using namespace block;
    const int most = args.sequences.most_chunks(), b = block_index(0) / most, n = block_index(0) % most;
    const Sequence sequence = args.sequences[b];
    if (n >= sequence.chunks) return;
    const int h = block_index(1), chunk = args.sequences.chunk, w = warp();
    const int left = sequence.length - n * chunk;
    const Chunk tokens{args.sequences.place(b), h, left < chunk ? left : chunk,
                       sequence.first + std::int64_t{n} * chunk};
    const std::int64_t slot = std::int64_t{h} * args.sequences.slots + sequence.slot + n, entry = slot * chunk;

    Arena arena;
    const auto sums = arena.take<double>(2 * warps), levels = arena.take<double>(2 * warps);
    const auto resets = arena.take<std::int32_t>(2 * warps);
    const auto masses = arena.take<float>(warps);

    Prefix before{0., -infinity, -1};  // of the tokens before the pass; then of all
    Lanes<double> unit = -infinity;    // ⌈before.level⌉
    Lanes<float> mass = 0.f;           // of the lane's tokens so far that no reset follows, times 2^-unit
    for (int from = 0; from < chunk; from += threads) {
      const Lanes<int> i = lane() + (from + 32 * w);
      const Keys keys = read_keys(args, tokens, from + 32 * w);
      Prefix own = read_gates(args, tokens, i);
      const Lanes<double> own_key = keys.exponent - own.sum + own.level;  // level: 0, or NaN
      own.level = largest_since_reset(own_key, own.reset, i);

      // One barrier a pass: the next one writes the other half.
      const int half = from / threads % 2 * warps;
      put(sums, half + w, own.sum);
      put(levels, half + w, own.level);
      put(resets, half + w, own.reset);
      barrier();
      Prefix first = before;
      SYMPOW_UNROLL
      for (int v = 0; v < warps; ++v) {
        if (v == w) first = before;
        before = join(before, {get(sums, half + v), get(levels, half + v), get(resets, half + v)});
      }

      const Lanes<double> key = own_key - first.sum;
      if (from + 32 * w < chunk) {
        const Prefix here = join(first, own);
        const Lanes<std::int64_t> at = i + entry;
        put_all(args.tokens.sum, at, here.sum);
        put_all(args.tokens.key, at, key);
        put_all(args.tokens.level, at, here.level);
        put_all(args.tokens.inverse, at, keys.inverse);
        put_all(args.tokens.reset, at, here.reset);
        if (args.tokens.mass.data) put_all(args.tokens.mass, at, keys.mass);
      }

      const Lanes<double> new_unit = ceiling(before.level);
      mass = where(before.reset >= from || unit == -infinity, 0.f, mass * two_to(unit - new_unit));
      mass += where(i < before.reset, 0.f, two_to(key - new_unit) * keys.mass);
      unit = new_unit;
    }

    const Lanes<double> end = before.sum + before.level, end_unit = ceiling(end);
    for (int from = 32 * w; from < chunk; from += threads) {
      const Lanes<int> i = lane() + from;
      Lanes<double> key[1];
      load(key, args.tokens.key, i + entry);
      const Lanes<bool> none = i < before.reset || key[0] == -infinity;
      put_all(args.tokens.to_end, i + entry, where(none, 0.f, two_to(before.sum + key[0] - end_unit)));
    }

    SYMPOW_UNROLL
    for (int distance = 16; distance > 0; distance /= 2) mass += shuffle_xor(mass, distance);
    put(masses, w, mass);
    barrier();
    if (w != 0) return;
    mass = 0.f;
    SYMPOW_UNROLL
    for (int v = 0; v < warps; ++v) mass += get(masses, v);
    mass = where(unit == -infinity, 0.f, mass * two_to(unit + before.sum - end_unit));
    put(args.chunks.total, slot, where(before.reset < 0, before.sum, -infinity));
    put(args.chunks.end, slot, end);
    put(args.chunks.own_mass, slot, mass);
  }

 private:
  struct Chunk {
    int b, h, length;  // b: where the sequence's rows are
    std::int64_t first;
  };
  /// Of consecutive tokens up to one of them: G, max u, and the last reset, from the first of them on.
  struct Prefix {
    Lanes<double> sum, level;
    Lanes<int> reset;
  };
  /// Of a token: λ (-∞ of a zero key, NaN where it is not finite), 2^-x, and ‖k̂‖^P.
  struct Keys {
    Lanes<double> exponent;
    Lanes<float> inverse, mass;
  };

  /// Of the tokens of a, then those of b.
  SYMPOW_DEVICE static Prefix join(const Prefix& a, const Prefix& b) {
    const Lanes<double> level = b.level - a.sum;
    return {a.sum + b.sum, block::where(b.reset < 0, larger(a.level, level), level),
            block::where(b.reset < 0, a.reset, b.reset)};
  }

  /// Of the tokens of a warp: the sums of their gates, their last resets, and as level NaN where a gate is, else 0.
  SYMPOW_DEVICE static Prefix read_gates(const Args& args, const Chunk& tokens, const Lanes<int>& i) {
    using namespace block;
    Lanes<float> gate[1] = {0.f};
    if (args.log_gates.data.data)
      load(gate, args.log_gates.data, args.log_gates.at(tokens.b, i + tokens.first, tokens.h), i < tokens.length);
    const Lanes<bool> finite = absolute(gate[0]) <= largest_float;
    Lanes<double> sum = where(finite, convert<double>(gate[0]) * log2_e, 0.);
    Lanes<int> reset = where(gate[0] < -largest_float, i, -1);
    SYMPOW_UNROLL
    for (int distance = 1; distance < 32; distance *= 2) {
      const Lanes<bool> follows = lane() >= distance;
      const Lanes<double> sum_before = shuffle_up(sum, distance);
      sum = where(follows, sum + sum_before, sum);
      reset = larger(reset, shuffle_up(reset, distance));
    }
    return {sum, where(finite || gate[0] < -largest_float, 0., not_a_number), reset};
  }

  /// Of the tokens of a warp: the largest u since the last reset, and since the first of them.
  SYMPOW_DEVICE static Lanes<double> largest_since_reset(const Lanes<double>& key, const Lanes<int>& reset,
                                                         const Lanes<int>& i) {
    using namespace block;
    Lanes<double> level = key;
    SYMPOW_UNROLL
    for (int distance = 1; distance < 32; distance *= 2) {
      const Lanes<double> level_before = shuffle_up(level, distance);  // the first lanes keep theirs
      level = where(i - distance < reset, level, larger(level, level_before));
    }
    return level;
  }

  static constexpr int at_once = 2;  // loads of a lane
  /// Of 32 tokens, a lane each. Lanes read octets of channels, 4, 8 or 16 lanes a token.
  SYMPOW_DEVICE static Keys read_keys(const Args& args, const Chunk& tokens, int from) {
    using namespace block;
    const int octets = args.d / 8, shift = octets <= 4 ? 2 : octets <= 8 ? 3 : 4, lanes = 1 << shift;
    const int rows = 32 >> shift, key_head = args.heads.key_of_state(tokens.h);
    const Lanes<int> row = lane() >> shift, octet = lane() & (lanes - 1);
    Lanes<int> largest = 0;     // |k_i|, as bits
    Lanes<float> square = 0.f;  // ‖2^-e k‖², 2^e the power of 2 below the largest |k_i|
    for (int step = 0; step < lanes; step += at_once) {
      Lanes<Pair<T>> r[std::size_t{at_once}][4];
      SYMPOW_UNROLL
      for (int s = 0; s < at_once; ++s) {
        SYMPOW_UNROLL
        for (int p = 0; p < 4; ++p) r[s][p] = Pair<T>{};
        const Lanes<int> i = row + (from + (step + s) * rows);
        const Lanes<std::int64_t> at = args.keys.at(tokens.b, i + tokens.first, key_head) + octet * 8;
        load(r[s], args.keys.data, at, octet < octets && i < tokens.length);
      }
      if (args.rotary.rates.data) {
        SYMPOW_UNROLL
        for (int s = 0; s < at_once; ++s) {
          const Lanes<int> i = row + (from + (step + s) * rows);
          turn_key(args, tokens, r[s], i + tokens.first, octet, i < tokens.length && octet < octets);
        }
      }
      Lanes<int> largest_of[std::size_t{at_once}];
      Lanes<float> square_of[std::size_t{at_once}];
      SYMPOW_UNROLL
      for (int s = 0; s < at_once; ++s) {
        largest_of[s] = 0;
        SYMPOW_UNROLL
        for (int p = 0; p < 4; ++p) largest_of[s] = larger(largest_of[s], largest_bits(r[s][p]));
      }
      for (int mask = 1; mask < lanes; mask *= 2) {
        SYMPOW_UNROLL
        for (int s = 0; s < at_once; ++s) largest_of[s] = larger(largest_of[s], shuffle_xor(largest_of[s], mask));
      }
      SYMPOW_UNROLL
      for (int s = 0; s < at_once; ++s) {
        const Lanes<float> scale = two_to(-leading_exponent(largest_of[s]));
        square_of[s] = 0.f;
        SYMPOW_UNROLL
        for (int p = 0; p < 4; ++p) {
          const Lanes<float> a = lower(r[s][p]) * scale, b = upper(r[s][p]) * scale;
          square_of[s] += a * a;
          square_of[s] += b * b;
        }
      }
      for (int mask = 1; mask < lanes; mask *= 2) {
        SYMPOW_UNROLL
        for (int s = 0; s < at_once; ++s) square_of[s] += shuffle_xor(square_of[s], mask);
      }
      SYMPOW_UNROLL
      for (int s = 0; s < at_once; ++s) {  // to the lanes of the tokens
        const Lanes<int> holder = (lane() & (rows - 1)) << shift;
        const Lanes<bool> mine = (lane() >> (5 - shift)) == step + s;
        largest = where(mine, shuffle(largest_of[s], holder), largest);
        square = where(mine, shuffle(square_of[s], holder), square);
      }
    }

    const Lanes<int> e = leading_exponent(largest);
    const Lanes<int> x = larger(smaller(e + ((ceiling_log2(square) + 1) >> 1), 126), -126);
    const Lanes<float> own_square = square * two_to((e - x) * 2);  // ‖k̂‖²
    Lanes<float> mass = 1.f;
    for (int p = 1; p < args.power; p += 2) mass *= own_square;
    if (args.power % 2 == 1) mass *= block::sqrt(own_square);
    const Lanes<bool> zero = largest == 0;
    const Lanes<double> exponent = where(largest < not_finite, convert<double>(x * args.power), not_a_number);
    return {where(zero, -infinity, exponent), where(zero, 0.f, two_to(-x)), mass};
  }

  /// The bits of the larger one of a pair, without its sign.
  SYMPOW_DEVICE static Lanes<int> largest_bits(const Lanes<block::Pair<T>>& two) {
    using namespace block;
    if constexpr (sizeof(T) == 2) {
      const Lanes<int> bits = bit_cast<int>(two);
      return larger(bits & 0x7fff, (bits >> 16) & 0x7fff);
    } else {
      return larger(bit_cast<int>(absolute(lower(two))), bit_cast<int>(absolute(upper(two))));
    }
  }

  /// An octet of the key of token t.
  SYMPOW_DEVICE static void turn_key(const Args& args, const Chunk& tokens, Lanes<block::Pair<T>> (&key)[4],
                                     Lanes<std::int64_t> t, Lanes<int> octet, Lanes<bool> active) {
    const int key_head = args.heads.key_of_state(tokens.h);
    args.rotary.turn(key, args.d, octet, args.d / 16, tokens.b, t, key_head, active);
    if (tokens.h % (args.heads.state / args.heads.key) == 0)
      store(args.turned.data, args.turned.at(tokens.b, t, key_head) + octet * 8, key, active);
  }

  /// The exponent e, 2^e ≤ |k|, of a number's bits; at least that of the smallest normal number, at most 126.
  SYMPOW_DEVICE static Lanes<int> leading_exponent(const Lanes<int>& bits) {
    return smaller(larger(bits >> block::fraction_bits<T>, 1) - bias, 126);
  }

  // The value of the last lane, to a place in memory; from one in shared memory, to all lanes.
  template <class Memory, class I, class X>
  SYMPOW_DEVICE static void put(Memory memory, I i, const Lanes<X>& value) {
    const Lanes<X> one[1] = {value};
    store(memory, block::lane() - 31 + i, one, block::lane() == 31);
  }
  template <class X>
  SYMPOW_DEVICE static Lanes<X> get(block::Shared<X> memory, int i) {
    Lanes<X> one[1];
    load(one, memory, i);
    return one[0];
  }
  // Values of all lanes to global memory.
  template <class X>
  SYMPOW_DEVICE static void put_all(Global<X> memory, const Lanes<std::int64_t>& i, const Lanes<X>& value) {
    const Lanes<X> one[1] = {value};
    store(memory, i, one);
  }

  static constexpr double log2_e = 1.4426950408889634074;
  static constexpr int bias = block::fraction_bits<T> == 10 ? 15 : 127;
  // The bits of infinity; of floats those of 0x1.ffp127, whose first part in bf16 is.
  static constexpr int not_finite = ((2 * bias + 1) << block::fraction_bits<T>)-(sizeof(T) == 2 ? 0 : 0x8000);
};

}  // namespace sympow::cuda
