// Sums of chunks for Hopper: P 2, 16 bits, d up to 64, e up to 64.
#pragma once

#include "../layout/exponents.hpp"
#include "../update/update.hpp"
#include "tile_ring.hpp"

namespace sympow::cuda::hopper {

/// ΔS and ΔZ as sympow::cuda::Update has them, of keys or of rows, with the same arguments.
///
/// A block takes items of a chunk and state head as long as there are any: two units, one for each computing group. A
/// unit is four tiles of 64 monomials (i, j), i in octet a and j in octet b, or Z. The group that copies brings stages
/// of 64 tokens: keys, which become k̂ and w k̂ when they have come, and values.
///   tiles   left factors (w k̂_i) k̂_j in registers, 16 tokens at a time: k̂ᵀ by ldmatrix, w k̂_i from the lanes of
///           its channel; times v, whose tile has a token in each row
///   Z       (ℓ w k̂)ᵀ k̂, ℓ = 1 of keys: the part i ≤ j of this symmetric matrix
///
/// Roundings: w k̂, φ and ℓ w k̂ to T; sums in float. Cost: 2 D e operations a token.
template <class T, int d>
struct Update {
  using General = cuda::Update<T, 2, d>;
  using Args = typename General::Args;
  static constexpr int octets = d / 8, units_of_row = d > 32 ? 2 : 1;  // of a row of tiles (a, b), b ≥ a
  static constexpr int tile_units = d == 64 ? 9 : d == 32 ? 3 : 1, pairs = (tile_units + 1) / 2;
  static constexpr int threads = block_threads, blocks_per_multiprocessor = 1;
  static constexpr int shared_bytes = 1024 + 3 * ring_slots * 8192 + ring_slots * weight_bytes;

  SYMPOW_HOST_DEVICE static std::int64_t items(const Sequences& sequences, const Heads& heads) {
    return std::int64_t{sequences.batch} * sequences.most_chunks() * heads.state * pairs;
  }
  /// For a device of so many multiprocessors.
  static Blocks blocks(const Sequences& sequences, const Heads& heads, int multiprocessors) {
    const std::int64_t all = items(sequences, heads);
    return {all < multiprocessors ? all : multiprocessors};
  }

  SYMPOW_DEVICE static void run([[maybe_unused]] const Args& x) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
    run_groups<T>(
        [&](const Memory<T>& memory) {
          Producer<T> producer(memory);
          const auto finish = [&](Shared<T> keys, int slot) { weigh_keys(memory, keys, slot); };
          each_item(x, [&](const ChunkItem& item) { bring_item(item, memory, producer, finish); });
          producer.finish_tile(finish);
        },
        [&](const Memory<T>& memory, int group) {
          Computing computing{{memory, {}, {}}};
          each_item(x, [&](const ChunkItem& item) { computing.run(item, item.pair * 2 + group); });
        });
#endif
  }

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
 private:
  static_assert(tile_units % 2 == 1, "the last unit of the last pair is Z");

  /// Two units of a chunk and state head.
  struct ChunkItem {
    const Args& x;
    int index, pair, head, b;
    bool exists;
    std::int64_t begin;       ///< the chunk's first token
    int own_slot, seen, end;  ///< its slot of head 0; tokens of the chunk before and after these count as 0

    SYMPOW_DEVICE ChunkItem(const Args& args, int n) : x(args), index(n), pair(n % pairs) {
      head = index / pairs % x.heads.state;
      const int place = index / pairs / x.heads.state, chunk = place % x.sequences.most_chunks();
      b = place / x.sequences.most_chunks();
      const Sequence sequence = x.sequences[b];
      exists = chunk < sequence.chunks;
      if (!exists) return;
      const int left = sequence.length - chunk * x.sequences.chunk;
      const int length = left < x.sequences.chunk ? left : x.sequences.chunk;
      begin = sequence.first + std::int64_t{chunk} * x.sequences.chunk;
      own_slot = sequence.slot + chunk;
      const int reset = is_adjoint() ? 0 : load_one(x.tokens.reset, slot() * x.sequences.chunk + (length - 1));
      seen = reset > 0 ? reset : 0;
      end = is_adjoint() ? load_one(x.rows.ends, slot()) : length;
    }
    SYMPOW_DEVICE bool is_adjoint() const { return x.rows.ends.data; }
    SYMPOW_DEVICE std::int64_t slot() const { return std::int64_t{head} * x.sequences.slots + own_slot; }
    /// The unit of ℓ, or its inverse.
    SYMPOW_DEVICE float offset_unit(int sign) const {
      return is_adjoint() ? two_to(load_one(x.rows.exponents, slot()) * sign) : 1.f;
    }
    SYMPOW_DEVICE int first() const { return seen / tile_rows * tile_rows; }
    /// A state has the tokens of its key head, or of several, one after the other.
    SYMPOW_DEVICE int token_heads() const { return x.heads.key > x.heads.state ? x.heads.key / x.heads.state : 1; }
    SYMPOW_DEVICE int stages() const {
      return end > first() ? (end - first() + tile_rows - 1) / tile_rows * token_heads() : 0;
    }
  };
  template <class Call>
  SYMPOW_DEVICE static void each_item(const Args& x, const Call& call) {
    const int all = static_cast<int>(items(x.sequences, x.heads));
#pragma unroll 1
    for (int index = block::block_index(0); index < all; index += static_cast<int>(gridDim.x)) {
      const ChunkItem item(x, index);
      if (item.exists) call(item);
    }
  }

  /// Of a stage, beside the ring's tile of k̂: w k̂, v, and of each token 2^-x, w and then ℓ.
  SYMPOW_DEVICE static Shared<T> weighted_keys(const Memory<T>& memory, int slot) { return memory.own_tile(0, slot); }
  SYMPOW_DEVICE static Shared<T> values(const Memory<T>& memory, int slot) {
    return memory.sums(0).template as<T>().after(slot * tile_entries);
  }
  SYMPOW_DEVICE static Shared<float> offsets(const Memory<T>& memory, int slot) {
    return memory.weights(slot).after(2 * tile_rows);
  }

  // ---- the group that copies ----

  template <class Finish>
  SYMPOW_DEVICE static void bring_item(const ChunkItem& item, const Memory<T>& memory, Producer<T>& producer,
                                       const Finish& finish) {
    const Args& x = item.x;
    const int place = x.sequences.place(item.b);
    int head = item.head * item.token_heads(), from = item.first();
#pragma unroll 1
    for (int left = item.stages(); left > 0; --left) {
      pin(head), pin(from);
      producer.begin_tile(
          [&](Shared<T> keys, int slot) {
            const int key_head = x.heads.key > x.heads.state ? head : x.heads.key_of_state(head);
            write_weights(memory, item, head, from, slot);
            producer.bring(keys, x.keys.data, x.keys.at(place, item.begin + from, key_head), x.keys.token,
                           item.seen - from, item.end - from, d);
            producer.bring(values(memory, slot), x.values.data, x.values.at(place, item.begin + from, key_head),
                           x.values.token, item.seen - from, item.end - from, x.e);
          },
          finish);
      from += tile_rows;
      if (from >= item.end) from = item.first(), ++head;
    }
  }
  /// 2^-x, w and ℓ of a stage, 0 of tokens that count as 0; a lane has two.
  SYMPOW_DEVICE static void write_weights(const Memory<T>& memory, const ChunkItem& item, int head, int from,
                                          int slot) {
    const Args& x = item.x;
    const int token = 2 * block::lane();
    const std::int64_t at = (std::int64_t{head} * x.sequences.slots + item.own_slot) * x.sequences.chunk + from + token;
    float inverse[2] = {1.f, 1.f}, weight[2], offset[2] = {1.f, 1.f};  // rows are in units
    load(weight, x.tokens.to_end, at);
    load(inverse, x.tokens.inverse, at, !item.is_adjoint());
    load(offset, x.rows.offsets, at, item.is_adjoint());
    const float unit = item.offset_unit(-1);
    float four[4];
#pragma unroll
    for (int n = 0; n < 2; ++n) {
      const bool counts = from + token + n >= item.seen && from + token + n < item.end;
      four[2 * n] = inverse[n];
      four[2 * n + 1] = counts ? weight[n] : 0.f;
      offset[n] = counts ? offset[n] * unit : 0.f;
    }
    store(memory.weights(slot), 2 * token, four);
    store(offsets(memory, slot), token, offset);
  }
  /// k̂ in the place of keys, and w k̂: a lane has the octets that it has copied.
  SYMPOW_DEVICE static void weigh_keys(const Memory<T>& memory, Shared<T> keys, int slot) {
    const Shared<T> weighted = weighted_keys(memory, slot);
    int row = block::lane() / 8;
    pin(row);
#pragma unroll 4
    for (; row < tile_rows; row += 4) {
      const int place = octet_place<64>(row, block::lane() % 8) / 2;
      float two[2];  // 2^-x and w
      Pair<T> pairs[4], plain[4], weighed[4];
      load(two, memory.weights(slot), 2 * row);
      load(pairs, keys.template as<Pair<T>>(), place);
#pragma unroll
      for (int p = 0; p < 4; ++p) {
        const float one = block::lower(pairs[p]) * two[0], other = block::upper(pairs[p]) * two[0];
        plain[p] = block::pack<T>(one, other);
        weighed[p] = block::pack<T>(one * two[1], other * two[1]);
      }
      store(keys.template as<Pair<T>>(), place, plain);
      store(weighted.template as<Pair<T>>(), place, weighed);
    }
  }

  // ---- a group that computes ----

  /// Four tiles (a, b): the first `count` of one octet a, with b one after the other, the others of another a. Beyond
  /// the last octet they are no tiles.
  struct Tiles {
    int count, a, b, other_a, other_b;
    SYMPOW_DEVICE explicit Tiles(int unit) : a(unit / units_of_row), b(a + unit % units_of_row * 4) {
      count = octets - b < 4 ? octets - b : 4;
      other_a = count == 4 ? a : octets == 2 ? 1 : octets - a;
      other_b = other_a > a ? other_a : octets;
    }
    SYMPOW_DEVICE int row(int n) const { return n < count ? a : other_a; }
    SYMPOW_DEVICE int column(int n) const { return n + (n < count ? b : other_b - count); }
  };

  struct Computing {
    Consumer<T> consumer;

    SYMPOW_DEVICE void run(const ChunkItem& item, int unit) {
      if (unit == tile_units)
        add_normaliser(item);
      else
        add_tiles(item, unit);
    }

   private:
    SYMPOW_DEVICE static int warp() { return static_cast<int>(threadIdx.x) / 32 % 4; }
    SYMPOW_DEVICE Shared<T> keys() const { return consumer.memory.tile(consumer.at.slot()); }
    SYMPOW_DEVICE Shared<T> weighted() const { return weighted_keys(consumer.memory, consumer.at.slot()); }

    SYMPOW_DEVICE void add_tiles(const ChunkItem& item, int unit) {
      const Tiles tiles(unit);
      Accumulator sum[4];
#pragma unroll
      for (auto& tile : sum) clear(tile);
      const int lane = block::lane(), stages = item.stages();
      // Where 16 tokens of both octets a begin, and of two octets b at a time.
      const int at_a = octet_place<64>(lane % 16, lane < 16 ? tiles.a : tiles.other_a);
      const int at_b[2] = {octet_place<64>(lane % 16, tiles.column(lane / 16)),
                           octet_place<64>(lane % 16, tiles.column(2 + lane / 16))};
      const std::uint32_t first_values = descriptor_of(values(consumer.memory, 0).address);
      LeftFactors<T> phi[2];  // [16 tokens % 2][tile]
      int held = -1;          // the slot that products still read
#pragma unroll 1
      for (int stage = 0; stage < stages; ++stage, consumer.at.advance()) {
        const std::uint32_t right = first_values + static_cast<std::uint32_t>(consumer.at.slot()) * tile_step;
        consumer.wait();
#pragma unroll
        for (int s = 0; s < 4; ++s) {
          Pair<T> heads[4], tails[2][4], entry[2][4];  // heads of both a
          block::ldmatrix<true>(heads, weighted(), at_a + s * 16 * 64);
          block::ldmatrix<true>(tails[0], keys(), at_b[0] + s * 16 * 64);
          block::ldmatrix<true>(tails[1], keys(), at_b[1] + s * 16 * 64);
#pragma unroll
          for (int n = 0; n < 2; ++n)
#pragma unroll
            for (int r = 0; r < 4; ++r)
              entry[n][r] = block::shuffle(heads[2 * n + r / 2], (2 * warp() + r % 2) * 4 + lane % 4);
          products_wait<1>();  // all but the last 16 tokens
          if (s == 1 && held >= 0) consumer.release(held);
          auto& left = phi[s % 2];
          pin(left);
#pragma unroll
          for (int f = 0; f < 4; ++f)
#pragma unroll
            for (int r = 0; r < 4; ++r)
              left[f][r] = block::multiply(block::where(f == 0 || f < tiles.count, entry[0][r], entry[1][r]),
                                           tails[f / 2][f % 2 * 2 + r / 2]);
          pin(left);
          products_fence();
#pragma unroll
          for (int f = 0; f < 4; ++f) wgmma<1>(sum[f], left[f], whole_descriptor(right + 128 * s), true);
          products_commit();
        }
        held = consumer.at.slot();
      }
      products_wait<0>();
      if (held >= 0) consumer.release(held);
      pin(sum);
      int index = item.index;  // what this takes is in no register before
      pin(index), pin(unit);
      const ChunkItem of(item.x, index);
      const Tiles all(unit);
#pragma unroll
      for (int f = 0; f < 4; ++f) store_tile(of, all.row(f), all.column(f), sum[f]);
    }
    SYMPOW_DEVICE static void store_tile(const ChunkItem& item, int a, int b, const Accumulator& sum) {
      const int e = item.x.e, lane = block::lane(), j = 8 * b + lane / 4;
#pragma unroll
      for (int g = 0; g < 2; ++g) {
        const int i = 8 * a + 2 * warp() + g;
        const std::int64_t entry = (item.slot() * General::D + pair_place(d, i, j)) * e;
#pragma unroll
        for (int o = 0; o < 8; ++o) {
          const int column = 8 * o + lane % 4 * 2;
          const float two[2] = {sum[o][2 * g], sum[o][2 * g + 1]};
          store(item.x.own.sums, entry + column, two, i <= j && j < d && column < e);
        }
      }
    }

    SYMPOW_DEVICE void add_normaliser(const ChunkItem& item) {
      Accumulator sum;
      clear(sum);
      const int lane = block::lane(), stages = item.stages();
      const int at = octet_place<64>(lane % 8 + lane / 16 * 8, 2 * warp() + lane / 8 % 2);  // 16 channels and tokens
#pragma unroll 1
      for (int stage = 0; stage < stages; ++stage, consumer.at.advance()) {
        consumer.wait();
        LeftFactors<T> left;
#pragma unroll
        for (int s = 0; s < 4; ++s) {
          block::ldmatrix<true>(left[s], weighted(), at + s * 16 * 64);
#pragma unroll
          for (int r = 0; r < 4; ++r) {
            float offset[2];
            load(offset, offsets(consumer.memory, consumer.at.slot()), s * 16 + r / 2 * 8 + lane % 4 * 2);
            left[s][r] = block::pack<T>(block::lower(left[s][r]) * offset[0], block::upper(left[s][r]) * offset[1]);
          }
        }
        pin(left);
        products_fence();
        add_product(sum, left, consumer.descriptor());
        products_commit();
        products_wait<0>();
        consumer.release(consumer.at.slot());
      }
      pin(sum);
      store_normaliser(item, sum);
    }
    SYMPOW_DEVICE static void store_normaliser(const ChunkItem& item, const Accumulator& sum) {
      const float unit = item.offset_unit(1);
      const std::int64_t first = item.slot() * General::D;
#pragma unroll
      for (int o = 0; o < 8; ++o)
#pragma unroll
        for (int r = 0; r < 4; ++r) {
          const int i = 16 * warp() + 8 * (r / 2) + block::lane() / 4, j = 8 * o + block::lane() % 4 * 2 + r % 2;
          const float one[1] = {sum[o][r] * unit};
          store(item.x.own.normaliser, first + pair_place(d, i, j), one, i <= j && j < d);
        }
    }
  };
#endif
};

}  // namespace sympow::cuda::hopper
