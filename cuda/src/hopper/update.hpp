// Sums of chunks for Hopper: P 2, 16 bits, d up to 128, e up to 64, of d 128 any.
#pragma once

#include "../layout/exponents.hpp"
#include "../update/update.hpp"
#include "tile_ring.hpp"

namespace sympow::cuda::hopper {

/// ΔS and ΔZ as sympow::cuda::Update has them, of keys or of rows, with the same arguments.
///
/// A block takes items of a chunk, state head and `column_tiles` of 64 value channels as long as there are any: two
/// units, one for each computing group. A unit is four tiles of 64 monomials (i, j), i in octet a and j in octet b, of
/// two tiles of value channels two, or Z. The group that copies brings stages of 64 tokens: keys, which become
/// k̃ = √w k̂ when they have come, and their transpose, and values.
///   tiles   left factors k̃_i k̃_j in registers, 16 tokens at a time; times v, whose tile has a token in each row
///   Z       (ℓ k̃)ᵀ k̃, ℓ = 1 of keys: the part i ≤ j of this symmetric matrix
///
/// A stage has 64 channels of keys. Of d 128 these are one half of them, whose tiles are as those of d 64; or four
/// octets of each, for tiles of a in the first and b in the second half; or the first half, and the second in the place
/// of values, for what Z has of both.
///
/// Roundings: k̃, φ and ℓ k̃ to T; sums in float. Cost: 2 D e operations a token.
template <class T, int d, int column_tiles = 1>
struct Update {
  using General = cuda::Update<T, 2, d>;
  using Args = typename General::Args;
  static constexpr int parts = channel_tiles<d>, channels = channels_of_tile<d>;     // of keys: halves of d 128
  static constexpr int widest = parts > 1 ? 256 : 64;                                // e up to that
  static constexpr int octets = channels / 8, units_of_row = channels > 32 ? 2 : 1;  // of a row of tiles (a, b), b ≥ a
  static constexpr int unit_tiles = 4 / column_tiles;
  static constexpr int quads = channels == 64 ? 9 : channels == 32 ? 3 : 1;  // four tiles of a part each
  static constexpr int tile_units = column_tiles * quads, pairs_of_part = (tile_units + 2) / 2;
  static constexpr int across_pairs = 2 * column_tiles;  // of four octets of a part and four of the other
  /// Pairs of units for the value channels of an item, without what Z has of both parts.
  static constexpr int tile_pairs = parts > 1 ? 2 * pairs_of_part + 4 * across_pairs : pairs_of_part;
  static constexpr int slots = column_tiles > 1 ? 6 : ring_slots;  // of stages
  /// Registers of a thread of each kind of group.
  static constexpr int copying = column_tiles > 1 ? 120 : 104, computing = column_tiles > 1 ? 192 : 200;
  static constexpr int threads = block_threads, blocks_per_multiprocessor = 1;
  static constexpr int shared_bytes = 1024 + 3 * ring_slots * 8192 + ring_slots * weight_bytes;

  /// Of a chunk and state head with e value channels.
  SYMPOW_HOST_DEVICE static int pairs(int e) {
    return parts > 1 ? (e + 64 * column_tiles - 1) / (64 * column_tiles) * tile_pairs + 1 : tile_pairs;
  }
  SYMPOW_HOST_DEVICE static std::int64_t items(const Sequences& sequences, const Heads& heads, int e) {
    return std::int64_t{sequences.batch} * sequences.most_chunks() * heads.state * pairs(e);
  }
  /// For a device of so many multiprocessors.
  static Blocks blocks(const Sequences& sequences, const Heads& heads, int e, int multiprocessors) {
    const std::int64_t all = items(sequences, heads, e);
    return {all < multiprocessors ? all : multiprocessors};
  }

  SYMPOW_DEVICE static void run([[maybe_unused]] const Args& x) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
    run_groups<T, copying, computing>(
        [&](const Memory<T>& memory) {
          Producer producer(memory);
          unsigned of_normaliser = 0;  // a bit for each slot: keys stay as rows, or the second half of them does
          const auto finish = [&](Shared<T> keys, int slot) {
            finish_weights(memory, slot);
            weigh_keys(memory, keys, slot, true, of_normaliser >> slot & 1u);
            if (parts > 1 && (of_normaliser >> slot & 256u))
              weigh_keys(memory, values(memory, slot), slot, false, true);
          };
          each_item(x, [&](const ChunkItem& item) { bring_item(item, memory, producer, of_normaliser, finish); });
          producer.finish_last_tile(finish);
        },
        [&](const Memory<T>& memory, int group) {
          Computing computing{{memory, {}, {}}};
          each_item(x, [&](const ChunkItem& item) { computing.run(item, group); });
        });
#endif
  }

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
 private:
  using Producer = hopper::Producer<T, 2, slots>;

  /// Two units, and of which channels a stage has keys.
  struct PairOfUnits {
    int pair;  ///< -1: what Z has of both parts

    SYMPOW_DEVICE explicit PairOfUnits(int n) : pair(parts > 1 ? n - 1 : n) {}
    SYMPOW_DEVICE bool is_of_both() const { return parts > 1 && pair < 0; }
    /// Tiles with a in one part and b in the other.
    SYMPOW_DEVICE bool is_across() const { return parts > 1 && of_columns() >= 2 * pairs_of_part; }
    /// The first value channel.
    SYMPOW_DEVICE int column() const { return parts > 1 && pair > 0 ? pair / tile_pairs * 64 * column_tiles : 0; }
    /// The octet of channels that is the n-th of a stage.
    SYMPOW_DEVICE int octet(int n) const {
      if (parts == 1 || is_of_both()) return n;
      if (!is_across()) return n + of_columns() / pairs_of_part * 8;
      const int both = of_across() / across_pairs;  // which four of each
      return n < 4 ? n + both / 2 * 4 : n + 4 + both % 2 * 4;
    }
    /// tile_units: Z; beyond it nothing.
    SYMPOW_DEVICE int unit(int group) const {
      if (is_of_both()) return tile_units + group;
      return (is_across() ? of_across() % across_pairs : parts > 1 ? of_columns() % pairs_of_part : pair) * 2 + group;
    }
    SYMPOW_DEVICE bool has_normaliser(int group) const { return unit(group) == tile_units && column() == 0; }
    /// Whether its left and right factors are the same keys.
    SYMPOW_DEVICE bool has_square() const {
      return !is_of_both() && !is_across() && unit(tile_units % 2) == tile_units;
    }

   private:
    SYMPOW_DEVICE int of_columns() const { return parts > 1 ? pair % tile_pairs : pair; }
    SYMPOW_DEVICE int of_across() const { return of_columns() - 2 * pairs_of_part; }
  };
  /// Two units of a chunk and state head.
  struct ChunkItem : PairOfUnits {
    const Args& x;
    int index, head, b;
    bool exists;
    std::int64_t begin;       ///< the chunk's first token
    int own_slot, seen, end;  ///< its slot of head 0; tokens of the chunk before and after these count as 0

    SYMPOW_DEVICE ChunkItem(const Args& args, int n) : PairOfUnits(n % pairs(args.e)), x(args), index(n) {
      head = index / pairs(x.e) % x.heads.state;
      const int place = index / pairs(x.e) / x.heads.state, chunk = place % x.sequences.most_chunks();
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
  /// Counted anew each time: kept in no register.
  SYMPOW_DEVICE static int items_of(const Args& x) {
    Sequences sequences = x.sequences;
    pin(sequences.batch);
    return static_cast<int>(items(sequences, x.heads, x.e));
  }
  template <class Call>
  SYMPOW_DEVICE static void each_item(const Args& x, const Call& call) {
#pragma unroll 1
    for (int index = block::block_index(0); index < items_of(x); index += static_cast<int>(gridDim.x)) {
      const ChunkItem item(x, index);
      if (item.exists) call(item);
    }
  }

  /// Of a stage, beside the ring's tile of k̃: k̃ᵀ, v, and of each token √w 2^-x and ℓ.
  static_assert(ring_slots == 8, "k̃ᵀ takes the place of eight tiles of an item's own");
  SYMPOW_DEVICE static Shared<T> columns(const Memory<T>& memory, int slot) { return memory.own_tile(0, slot); }
  SYMPOW_DEVICE static Shared<T> values(const Memory<T>& memory, int slot) {
    const Shared<T> behind = memory.sums(0).template as<T>();
    if constexpr (column_tiles == 1) return behind.after(slot * tile_entries);
    if (slot < 2) return slot == 0 ? memory.own_tile(0, slots) : memory.tile(slots);  // where no slot is
    return behind.after((slot - 2) * 2 * tile_entries);
  }
  /// Where a left factor of 16 tokens lies in k̃ᵀ: the lane's two pairs of tokens, 8 apart. Four channels in a row
  /// have their 16 tokens in different places, so that lanes read and write without a conflict.
  SYMPOW_DEVICE static int column_place(int channel, int step) {
    return channel * 64 + ((step ^ channel % 4) * 4 + block::lane() % 4) * 4;
  }
  SYMPOW_DEVICE static Shared<float> offsets(const Memory<T>& memory, int slot) {
    return memory.weights(slot).after(2 * tile_rows);
  }

  // ---- the group that copies ----

  template <class Finish>
  SYMPOW_DEVICE static void bring_item(const ChunkItem& item, const Memory<T>& memory, Producer& producer,
                                       unsigned& of_normaliser, const Finish& finish) {
    const Args& x = item.x;
    const int place = x.sequences.place(item.b);
    const float unit = item.offset_unit(-1);
    int head = item.head * item.token_heads(), from = item.first();
#pragma unroll 1
    for (int left = item.stages(); left > 0; --left) {
      pin(head), pin(from);
      producer.begin_tile(
          [&](Shared<T> keys, int slot) {
            const int key_head = x.heads.key > x.heads.state ? head : x.heads.key_of_state(head);
            const unsigned bits = item.is_of_both() ? 256 : item.has_square() ? 1 : 0;
            of_normaliser = (of_normaliser & ~(257u << slot)) | bits << slot;
            bring_weights(memory, item, unit, head, from, slot);
            producer.bring(keys, x.keys.data, x.keys.at(place, item.begin + from, key_head) + 8 * item.octet(0),
                           x.keys.token, item.seen - from, item.end - from, channels,
                           8 * (item.octet(4) - item.octet(0) - 4));
            const bool are_keys = item.is_of_both();
            const auto& of = are_keys ? x.keys : x.values;
            const int column = are_keys ? 64 : item.column();
#pragma unroll
            for (int c = 0; c < column_tiles; ++c)
              producer.bring(values(memory, slot).after(c * tile_entries), of.data,
                             of.at(place, item.begin + from, key_head) + column + 64 * c, of.token, item.seen - from,
                             item.end - from, (are_keys ? d : x.e) - column - 64 * c);
          },
          finish);
      from += tile_rows;
      if (from >= item.end) from = item.first(), ++head;
    }
  }
  /// Copies w, 2^-x and ℓ of a stage, and keeps which of its tokens count, and the unit of ℓ.
  SYMPOW_DEVICE static void bring_weights(const Memory<T>& memory, const ChunkItem& item, float unit, int head,
                                          int from, int slot) {
    const Args& x = item.x;
    const int lane = block::lane(), token = lane % 16 * 4;
    const std::int64_t at = (std::int64_t{head} * x.sequences.slots + item.own_slot) * x.sequences.chunk + from + token;
    const Shared<float> to = memory.weights(slot);
    const bool is_inverse = lane >= 16;
    copy_octet(to.after(is_inverse * tile_rows + token).address,
               (is_inverse ? x.tokens.inverse : x.tokens.to_end).data + at, is_inverse && item.is_adjoint() ? 0 : 16);
    if (item.is_adjoint() && !is_inverse)
      copy_octet(offsets(memory, slot).after(token).address, x.rows.offsets.data + at, 16);
    const int bounds[2] = {item.seen - from, item.end - from};
    const float units[2] = {unit, item.is_adjoint() ? 1.f : 0.f};
    store(to.after(3 * tile_rows).template as<int>(), 0, bounds, lane == 0);
    store(to.after(3 * tile_rows), 2, units, lane == 0);
  }
  /// √w 2^-x in the place of w, and ℓ, 0 of tokens that do not count; a lane has two.
  SYMPOW_DEVICE static void finish_weights(const Memory<T>& memory, int slot) {
    const Shared<float> from = memory.weights(slot);
    const int token = 2 * block::lane();
    float weight[2], inverse[2], offset[2], units[2];
    int bounds[2];
    load(bounds, from.after(3 * tile_rows).template as<int>(), 0);
    load(units, from.after(3 * tile_rows), 2);
    load(weight, from, token);
    load(inverse, from.after(tile_rows), token);
    load(offset, offsets(memory, slot), token, units[1] != 0.f);
#pragma unroll
    for (int n = 0; n < 2; ++n) {
      const bool counts = token + n >= bounds[0] && token + n < bounds[1], is_row = units[1] != 0.f;
      weight[n] = counts ? square_root(weight[n]) * (is_row ? 1.f : inverse[n]) : 0.f;  // rows are in units
      offset[n] = !counts ? 0.f : is_row ? offset[n] * units[0] : 1.f;
    }
    store(from, token, weight);
    store(offsets(memory, slot), token, offset);
    block::warp_barrier();
  }
  /// k̃ᵀ, and for Z k̃ in the place of keys.
  SYMPOW_DEVICE static void weigh_keys(const Memory<T>& memory, Shared<T> keys, int slot, bool as_columns,
                                       bool as_rows) {
    const int lane = block::lane();
    const Shared<Pair<T>> to = columns(memory, slot).template as<Pair<T>>();
#pragma unroll 1
    for (int half = 0; half < 2; ++half) {  // 32 tokens
      float factor[4][2];                   // of the lane's tokens 8 n + lane % 4 · 2 + h
#pragma unroll
      for (int n = 0; n < 4; ++n) load(factor[n], memory.weights(slot), 32 * half + 8 * n + lane % 4 * 2);
      const int row = 32 * half + lane;
      Pair<T> next[4];
      block::ldmatrix<true>(next, keys, octet_place<64>(row, 0));
#pragma unroll 1
      for (int octet = 0; octet < 8; ++octet) {
        Pair<T> four[4];
#pragma unroll
        for (int n = 0; n < 4; ++n)
          four[n] = block::pack<T>(block::lower(next[n]) * factor[n][0], block::upper(next[n]) * factor[n][1]);
        block::ldmatrix<true>(next, keys, octet_place<64>(row, (octet + 1) % 8));
        if (as_rows) stmatrix(keys, octet_place<64>(row, octet), four);
        if (!as_columns) continue;
#pragma unroll
        for (int step = 0; step < 2; ++step) {
          const Pair<T> two[2] = {four[2 * step], four[2 * step + 1]};
          store(to, column_place(8 * octet + lane / 4, 2 * half + step) / 2, two);
        }
      }
    }
  }

  // ---- a group that computes ----

  /// Four tiles (a, b): the first `count`, 1, 2 or 4, of one octet a, with b one after the other, the others of another
  /// a. Beyond the last octet they are no tiles.
  struct Tiles {
    int count, a, b, other_a, other_b;
    int first;  ///< of the unit's
    SYMPOW_DEVICE Tiles(int unit, bool is_across)
        : Tiles(unit / column_tiles, is_across, unit % column_tiles * unit_tiles) {}
    SYMPOW_DEVICE Tiles(int unit, bool is_across, int n)
        : first(n), a(unit / units_of_row), b(a + unit % units_of_row * 4) {
      if (is_across) a = unit, b = 4;
      count = octets - b < 4 ? octets - b : 4;
      other_a = count == 4 ? a : octets == 2 ? 1 : octets - a;
      other_b = other_a > a ? other_a : octets;
      if (count != 3) return;
      const int three[2] = {a, b};
      a = other_a, b = other_b, count = 1;
      other_a = three[0], other_b = three[1];
    }
    SYMPOW_DEVICE int row(int n) const { return n + first < count ? a : other_a; }
    SYMPOW_DEVICE int column(int n) const { return n + first + (n + first < count ? b : other_b - count); }
  };

  struct Computing {
    Consumer<T, 2, slots> consumer;

    SYMPOW_DEVICE void run(const ChunkItem& item, int group) {
      const int unit = item.unit(group);
      if (parts > 1 ? unit < tile_units : unit != tile_units)
        add_tiles(item, unit);
      else if (parts == 1 || item.has_normaliser(group))
        add_normaliser(item);
      else
        consumer.skip(item.stages());
    }

   private:
    SYMPOW_DEVICE static int warp() { return static_cast<int>(threadIdx.x) / 32 % 4; }
    /// Left factors of 16 tokens: of the octets b of the unit's tiles, and of the warp's two channels of both octets a.
    struct Factors {
      Pair<T> tails[std::size_t{unit_tiles}][2], heads[2][2][2];
    };
    /// Where they lie in k̃ᵀ, of the first octet and 16 tokens, in bytes.
    struct FactorPlaces {
      int tails, heads[2];
      SYMPOW_DEVICE FactorPlaces()
          : tails(2 * column_place(block::lane() / 4, 0)), heads{place_of_head(0), place_of_head(1)} {}
      /// Through a shuffle, so that the compiler keeps it and does not make it again at each stage.
      SYMPOW_DEVICE static int place_of_head(int n) {
        return block::shuffle(2 * column_place(2 * warp() + n, 0), block::lane());
      }
    };
    SYMPOW_DEVICE static void load_factors(Factors& to, const Tiles& tiles, const FactorPlaces& places,
                                           std::uint32_t columns, int step) {
      const auto load_two = [&](Pair<T>(&two)[2], int octet, int place) {
        load(two, Shared<Pair<T>>{columns + static_cast<std::uint32_t>(octet * 1024 + (place ^ 32 * step))}, 0);
      };
#pragma unroll
      for (int f = 0; f < unit_tiles; ++f) load_two(to.tails[f], tiles.column(f), places.tails);
#pragma unroll
      for (int g = 0; g < 2; ++g) {
        load_two(to.heads[0][g], column_tiles > 1 ? tiles.row(0) : tiles.a, places.heads[g]);
        load_two(to.heads[1][g], column_tiles > 1 ? tiles.row(1) : tiles.other_a, places.heads[g]);
      }
    }

    SYMPOW_DEVICE void add_tiles(const ChunkItem& item, int unit) {
      const Tiles tiles(unit, item.is_across());
      Accumulator sum[4];
#pragma unroll
      for (auto& tile : sum) clear(tile);
      const int stages = item.stages();
      const std::uint32_t first_values = descriptor_of(values(consumer.memory, 0).address);
      FactorPlaces places;
      Factors factors;                             // of the next 16 tokens
      Pair<T> phi[2][std::size_t{unit_tiles}][4];  // [16 tokens % 2][tile]
      int held = -1;                               // the slot that products still read
#pragma unroll 1
      for (int stage = 0; stage < stages; ++stage, consumer.at.advance()) {
        const int slot = consumer.at.slot();
        const std::uint32_t right = column_tiles > 1 ? descriptor_of(values(consumer.memory, slot).address)
                                                     : first_values + static_cast<std::uint32_t>(slot) * tile_step;
        const std::uint32_t from = columns(consumer.memory, slot).address;
        consumer.wait();
        pin(places.tails), pin(places.heads);
        load_factors(factors, tiles, places, from, 0);
#pragma unroll
        for (int s = 0; s < 4; ++s) {
          products_wait<1>();  // all but the last 16 tokens
          if (s == 1 && held >= 0) consumer.release(held);
          const auto& [tails, heads] = factors;
          auto& left = phi[s % 2];
          pin(left);
#pragma unroll
          for (int f = 0; f < unit_tiles; ++f)
#pragma unroll
            for (int r = 0; r < 4; ++r) {
              const Pair<T> first = heads[0][r % 2][r / 2], other = heads[1][r % 2][r / 2];
              left[f][r] = block::multiply(f == 0                        ? first
                                           : f == 1 && column_tiles == 1 ? block::where(tiles.count > 1, first, other)
                                                                         : other,
                                           tails[f][r / 2]);
            }
          pin(left);
          if (s < 3) load_factors(factors, tiles, places, from, s + 1);
          products_fence();
#pragma unroll
          for (int n = 0; n < 4; ++n)
            wgmma<1>(sum[n], left[n / column_tiles], whole_descriptor(right + n % column_tiles * tile_step + 128 * s),
                     true);
          products_commit();
        }
        held = slot;
      }
      products_wait<0>();
      if (held >= 0) consumer.release(held);
      pin(sum);
      int index = item.index;  // what this takes is in no register before
      pin(index), pin(unit);
      const ChunkItem of(item.x, index);
      const Tiles all(unit, of.is_across());
#pragma unroll
      for (int n = 0; n < 4; ++n) {
        const int tile = n / column_tiles;
        store_tile(of, of.octet(all.row(tile)), of.octet(all.column(tile)), n % column_tiles * 64, sum[n]);
      }
    }
    SYMPOW_DEVICE static void store_tile(const ChunkItem& item, int a, int b, int first, const Accumulator& sum) {
      const int e = item.x.e, lane = block::lane(), j = 8 * b + lane / 4;
#pragma unroll
      for (int g = 0; g < 2; ++g) {
        const int i = 8 * a + 2 * warp() + g;
        const std::int64_t entry = (item.slot() * General::D + pair_place(d, i, j)) * e;
#pragma unroll
        for (int o = 0; o < 8; ++o) {
          const int column = 8 * o + lane % 4 * 2 + first + item.column();
          const float two[2] = {sum[o][2 * g], sum[o][2 * g + 1]};
          store(item.x.own.sums, entry + column, two, i <= j && j < d && column < e);
        }
      }
    }

    SYMPOW_DEVICE void add_normaliser(const ChunkItem& item) {
      Accumulator sum;
      clear(sum);
      const int stages = item.stages();
      int lane = block::lane(), channel = 16 * warp() + lane / 4;
      pin(lane), pin(channel);
#pragma unroll 1
      for (int stage = 0; stage < stages; ++stage, consumer.at.advance()) {
        consumer.wait();
        LeftFactors<T> left;
#pragma unroll
        for (int s = 0; s < 4; ++s) {
          const int slot = consumer.at.slot();
          const Shared<Pair<T>> from = columns(consumer.memory, slot).template as<Pair<T>>();
          float offset[2][2];
#pragma unroll
          for (int n = 0; n < 2; ++n) load(offset[n], offsets(consumer.memory, slot), s * 16 + n * 8 + lane % 4 * 2);
#pragma unroll
          for (int g = 0; g < 2; ++g) {
            Pair<T> two[2];
            load(two, from, column_place(channel + 8 * g, s) / 2);
#pragma unroll
            for (int n = 0; n < 2; ++n)
              left[s][2 * n + g] =
                  block::pack<T>(block::lower(two[n]) * offset[n][0], block::upper(two[n]) * offset[n][1]);
          }
        }
        std::uint32_t right = consumer.descriptor();
        if (item.is_of_both()) right = descriptor_of(values(consumer.memory, consumer.at.slot()).address);
        if constexpr (parts > 1) pin(right);
        pin(left);
        products_fence();
        add_product(sum, left, right);
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
      int row = 16 * warp() + block::lane() / 4 + 8 * item.octet(0);
      int column = block::lane() % 4 * 2 + (item.is_of_both() ? 64 : 8 * item.octet(0));
      pin(row), pin(column);
#pragma unroll
      for (int o = 0; o < 8; ++o)
#pragma unroll
        for (int r = 0; r < 4; ++r) {
          const int i = row + 8 * (r / 2), j = column + 8 * o + r % 2;
          const float one[1] = {sum[o][r] * unit};
          store(item.x.own.normaliser, first + pair_place(d, i, j), one, i <= j && j < d);
        }
    }
  };
#endif
};

}  // namespace sympow::cuda::hopper
