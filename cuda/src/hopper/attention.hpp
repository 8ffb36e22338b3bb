// Rows of attention for Hopper: P 2, 16 bits, d up to 128, e up to 64, of d 128 any.
#pragma once

#include "../attention/attention.hpp"
#include "state_walk.hpp"

namespace sympow::cuda::hopper {

/// y_i as sympow::cuda::Attention has it, with the same arguments; states in one term.
///
/// A block takes items of 256 queries and 64 value channels as long as there are any, two blocks of 64 for each
/// computing group, who share what comes: first the state, φ(q̂) S with φ made in registers, and q̂ Z, whose product
/// with q̂ is twice the normaliser; then keys, from old to new. Queries become q̂ where they lie.
/// A key before a block of rows has one weight for all of them, 2^{u_j - R}, R = r of the block's first row, made once
/// by the group that copies; in the block each pair has its own. As sympow::cuda::Attention does, by blocks of 64 rows
/// in the place of 32.
///
/// Roundings: φ and weighted scores to T, Z to two terms of T; sums in float; y to T.
/// Cost: 2 D e operations a query for S, 2 d + 2 e a pair.
template <class T, int d>
struct Attention {
  using General = cuda::Attention<T, 2, d>;
  using Args = typename General::Args;
  static constexpr int parts = channel_tiles<d>, widest = parts > 1 ? 256 : 64;  // e up to that
  static constexpr int kept = 12;                                                // numbers of a lane and tile
  static constexpr int threads = block_threads, blocks_per_multiprocessor = 1,
                       shared_bytes = shared_memory_bytes + 2 * 256 * kept * 4;
  static constexpr int tiles = 2, blocks_of_item = 2 * tiles;  // blocks of rows, of a group and of both

  /// Of e value channels; as items count, so is a head for each of them.
  SYMPOW_HOST_DEVICE static int columns(int e) { return parts > 1 ? (e + 63) / 64 : 1; }
  static std::int64_t items(const Sequences& sequences, const Heads& heads, int e) {
    return count_items(sequences, heads.query * columns(e), blocks_of_item);
  }
  /// For a device of so many multiprocessors.
  static Blocks blocks(const Sequences& sequences, const Heads& heads, int e, int multiprocessors) {
    return {grid_of(sequences, heads.query * columns(e), multiprocessors, blocks_of_item)};
  }

  SYMPOW_DEVICE static void run([[maybe_unused]] const Args& x) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
    run_groups<T>([&](const Memory<T>& memory) { bring_items(x, memory); },
                  [&](const Memory<T>& memory, int group) { Computing(x, memory, group).run_items(); });
#endif
  }

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
 private:
  using Walk = StateTiles<T, d, false>;

  /// The compiler keeps nothing in registers that follows from these.
  SYMPOW_DEVICE static Sequences forgotten(Sequences sequences) {
    pin(sequences.longest), pin(sequences.chunk);
    return sequences;
  }
  SYMPOW_DEVICE static Heads forgotten(Heads heads) {
    pin(heads.query), pin(heads.state), pin(heads.key);
    return heads;
  }

  /// What both kinds of groups know of an item.
  struct RowItem : Item {
    const Args& x;
    int column = 0, key_head;        ///< the first value channel
    std::int64_t state_slot;         ///< of the state head
    double state_level = -infinity;  ///< L; -∞: S is not read

    SYMPOW_DEVICE RowItem(const Args& args, int index) : RowItem(args, forgotten(args.sequences), args.heads, index) {}
    SYMPOW_DEVICE RowItem(const Args& args, const Sequences& sequences, Heads heads, int index)
        : Item(sequences, forgotten(heads).query * columns(args.e), index, blocks_of_item), x(args) {
      if (!exists()) return;
      if constexpr (parts > 1) {
        column = head % columns(x.e) * 64;
        head /= columns(x.e);
      }
      heads = forgotten(heads);
      const int state_head = heads.state_of_query(head);
      key_head = heads.key_of_state(state_head);
      state_slot = std::int64_t{state_head} * x.sequences.slots + block.slot;
      if (x.has_state && reset(block.top) < 0) state_level = load_one(x.chunks.enter, state_slot);
    }
    /// Entries of TokenArrays.
    SYMPOW_DEVICE std::int64_t token(int n) const { return state_slot * x.sequences.chunk + n; }
    SYMPOW_DEVICE int reset(int n) const { return load_one(x.tokens.reset, token(n)); }
    SYMPOW_DEVICE bool reads_state() const { return !(state_level == -infinity); }
    SYMPOW_DEVICE int first_row(int n) const { return block.top + n * block_tokens; }
    /// R: r of the first row of block n; 0 where that is -∞ or NaN, or there is no such row.
    SYMPOW_DEVICE double anchor(int n) const {
      const int row = first_row(n);
      if (row >= block.length) return 0.;
      const double own = load_one(x.tokens.level, token(row)), level = reset(row) < 0 ? larger(state_level, own) : own;
      return level > -infinity ? level : 0.;
    }
    /// The last gate of 0 up to that row; -1 without one.
    SYMPOW_DEVICE int seen(int n) const { return first_row(n) < block.length ? reset(first_row(n)) : -1; }
    /// The first block of keys that a row of the item sees, and the last.
    SYMPOW_DEVICE int first_block() const {
      const int last_reset = reset(block.top);
      return (last_reset < 0 ? 0 : last_reset) / block_tokens;
    }
    SYMPOW_DEVICE int last_block() const {
      const int bottom = first_row(blocks_of_item) < block.length ? first_row(blocks_of_item) : block.length;
      return (bottom - 1) / block_tokens;
    }
  };
  SYMPOW_DEVICE static int items_of(const Args& x) {
    return x.sequences.batch * x.sequences.most_chunks() * x.heads.query * columns(x.e) *
           items_of_chunk(x.sequences, blocks_of_item);
  }

  /// Beside a group's tile of keys or values: weights of these keys for each of its blocks of rows behind them, and for
  /// the rows of the keys' own block their exponents and 2^-x.
  SYMPOW_DEVICE static Shared<float> behind(Shared<float> weights, int t) { return weights.after(t * 4 * tile_rows); }
  SYMPOW_DEVICE static Shared<float> exponents(Shared<float> weights) { return weights.after(tile_rows); }
  SYMPOW_DEVICE static Shared<float> inverses(Shared<float> weights) { return weights.after(3 * tile_rows); }

  // ---- the group that copies ----

  SYMPOW_DEVICE static void bring_items(const Args& x, const Memory<T>& memory) {
    typename Walk::Producer producer(memory);
    const int items = items_of(x);
#pragma unroll 1
    for (int index = block::block_index(0); index < items; index += static_cast<int>(gridDim.x)) {
      const RowItem item(x, index);
      if (!item.exists()) continue;
      producer.forget();
      producer.next_own([&](Shared<T> tile, int n) {
        const int first = item.first_row(n / parts), channel = n % parts * 64;
        producer.bring(tile, x.queries.data, x.queries.at(item.block.b, item.block.begin + first, item.head) + channel,
                       x.queries.token, 0, item.block.length - first, d - channel);
      });
      if (item.reads_state()) Walk::bring(producer, x.prefixes, item.state_slot, x.e, item.column);
      bring_keys(producer, item);
    }
  }
  /// Keys and values of blocks of keys, tiles next to each other in the ring; beside the first one the weights of keys
  /// for the rows of group 0, beside the last one those for group 1.
  SYMPOW_DEVICE static void bring_keys(typename Walk::Producer& producer, const RowItem& item) {
    const Args& x = item.x;
    const int seen = item.reset(item.block.top), last = item.last_block();
    const FirstRows rows{item.anchor(block::lane() % blocks_of_item), item.seen(block::lane() % blocks_of_item)};
#pragma unroll 1
    for (int n = item.first_block(); n <= last; ++n) {
      const int from = n * block_tokens;
#pragma unroll
      for (int part = 0; part <= parts; ++part)
        producer.next_tile([&](Shared<T> tile, int slot) {
          const auto& of = part < parts ? x.keys : x.values;
          const int channel = part < parts ? 64 * part : item.column;
          producer.bring(tile, of.data, of.at(item.block.b, item.block.begin + from, item.key_head) + channel, of.token,
                         seen - from, item.block.length - from, (part < parts ? d : x.e) - channel);
          if (part == 0 || part == parts) weigh_keys(producer.weights(slot), item, from, part / parts, rows);
        });
    }
  }
  /// Of the first rows of the item's blocks, a lane has those of block lane % 4.
  struct FirstRows {
    double anchor;
    int seen;
  };
  /// For the rows of a group. A lane has two keys.
  SYMPOW_DEVICE static void weigh_keys(Shared<float> weights, const RowItem& item, int from, int own,
                                       const FirstRows& rows) {
    double exponent[2];
    float inverse[2];
    load(exponent, item.x.tokens.key, item.token(from) + 2 * block::lane());
    load(inverse, item.x.tokens.inverse, item.token(from) + 2 * block::lane());
#pragma unroll
    for (int t = 0; t < tiles; ++t) {
      const int top = item.first_row(own * tiles + t), place = 2 * block::lane();
      const double anchor = block::shuffle(rows.anchor, own * tiles + t);
      const int seen = block::shuffle(rows.seen, own * tiles + t);
      if (from == top) {
        const TwoFloats relative[2] = {TwoFloats::of(exponent[0] - anchor), TwoFloats::of(exponent[1] - anchor)};
        const float four[4] = {relative[0].high, relative[0].low, relative[1].high, relative[1].low};
        store(exponents(weights), 2 * place, four);
        store(inverses(weights), place, inverse);
      } else if (from < top) {
        float weight[2];
#pragma unroll
        for (int h = 0; h < 2; ++h)
          weight[h] = from + place + h >= seen
                          ? inverse[h] * block::exp2(static_cast<float>((exponent[h] - anchor) * .5))
                          : 0.f;
        store(behind(weights, t), place, weight);
      }
    }
  }

  // ---- a group that computes ----

  struct Computing : ComputingGroup<T, d> {
    using Base = ComputingGroup<T, d>;
    using Base::consumer, Base::own, Base::row, Base::warp;
    const Args& x;
    Accumulator sum[tiles];
    float total[tiles][2];  ///< the lane's part of the normaliser of its rows

    SYMPOW_DEVICE Computing(const Args& args, const Memory<T>& memory, int group)
        : Base{{memory, {}, {}}, group}, x(args) {}

    SYMPOW_DEVICE void run_items() {
      const int items = items_of(x);
#pragma unroll 1
      for (int index = block::block_index(0); index < items; index += static_cast<int>(gridDim.x)) {
        const RowItem item(x, index);
        if (!item.exists()) continue;
        consumer.memory.forget();
        consumer.wait_own();
        if (exists(item, 0)) {
          run(item, index);
        } else {
          consumer.skip((item.reads_state() ? Walk::count : 0) +
                        (parts + 1) * (item.last_block() - item.first_block() + 1));
          consumer.release_own();
        }
      }
    }

   private:
    SYMPOW_DEVICE Shared<T> queries(int t) const {
      return consumer.memory.own_tile(consumer.buffer.slot(), (own * tiles + t) * parts);
    }
    SYMPOW_DEVICE int first_row(const RowItem& item, int t) const { return item.first_row(own * tiles + t); }
    SYMPOW_DEVICE bool exists(const RowItem& item, int t) const { return first_row(item, t) < item.block.length; }

    /// The item is made again between products: while they run, none of it is in registers.
    SYMPOW_DEVICE RowItem again(int index) const {
      pin(index);
      return {x, index};
    }
    SYMPOW_DEVICE void run(const RowItem& item, int index) {
      const bool reads = begin(item);
#pragma unroll
      for (int t = 0; t < tiles; ++t) forget(t);
      if (reads) read_state();
      pin(sum);
      add_keys(again(index));
      consumer.release_own();
      write_tiles(again(index));
    }
    /// Returns whether the group reads the state.
    SYMPOW_DEVICE bool begin(const RowItem& item) {
#pragma unroll 1
      for (int t = 0; t < tiles; ++t) {
        take_queries(item, t);
        if (exists(item, t)) keep_levels(item, t);
      }
      publish_tiles();
      block::bar_sync(1 + own, group_threads);
      const bool reads = item.reads_state() && item.reset(first_row(item, 0)) < 0;
      if (item.reads_state() && !reads) consumer.skip(Walk::count);
      return reads;
    }
    SYMPOW_DEVICE void forget(int t) {
      clear(sum[t]);
      total[t][0] = total[t][1] = 0.f;
    }

    /// q̂ in the place of the warp's 16 queries of a tile; their norms to its part of `sums`.
    SYMPOW_DEVICE void take_queries(const RowItem& item, int t) const {
      const int first = 16 * warp(), token = first_row(item, t) + first;
      QueryNorms<2> norms{};
#pragma unroll 1
      for (int turns = x.rotary.rates.data ? 1 : 0; turns >= 0; --turns) {
        normalise_queries<64 * parts, TilePlaces<d>>(norms, queries(t), first);
        if (turns > 0)
          turn_queries<d, 2, TilePlaces<d>>(queries(t), first, x.rotary, item.block.b, item.key_head,
                                            item.block.begin + token, item.block.length - 1 - token);
      }
      const float four[4] = {static_cast<float>(norms.exponent[0]), static_cast<float>(norms.exponent[1]),
                             norms.square[0], norms.square[1]};
      store(kept_of(t), 0, four);
    }
    /// Of the lane's two rows of a tile: exponents and squares of q̂; r_i - R in two floats each; by what sums of what
    /// came before the block go on, and the first key that is seen.
    SYMPOW_DEVICE Shared<float> kept_of(int t) const {
      return consumer.memory.sums(8).after(kept * (64 * (4 * own + warp()) + 32 * t + block::lane()));
    }
    SYMPOW_DEVICE void keep_levels(const RowItem& item, int t) const {
      const RowLevels<2> levels = levels_of(item, t);
      const float above[4] = {levels.above[0].high, levels.above[0].low, levels.above[1].high, levels.above[1].low};
      const float carry[2] = {levels.carry(0), levels.carry(1)};
      const int seen[2] = {levels.seen[0], levels.seen[1]};
      store(kept_of(t), 4, above);
      store(kept_of(t), 8, carry);
      store(kept_of(t).template as<int>(), 10, seen);
    }

    /// sum = φ(q̂) S, and the lane's part of φ(q̂) Z, in units of the state.
    SYMPOW_DEVICE void read_state() {
#pragma unroll
      for (int part = 0; part < parts; ++part)
#pragma unroll
        for (int t = 0; t < tiles; ++t) read_normaliser(t, part);
      LeftFactors<T> phi[tiles];
#pragma unroll
      for (int t = 0; t < tiles; ++t) clear(phi[t]);
      int held = -1;  // the slot of the tile that products still read
#pragma unroll 1
      for (int a = 0; a < d / 8; ++a) {
        const Octet<T, d> outer[tiles] = {{queries(0), row(), a}, {queries(1), row(), a}};
#pragma unroll 1
        for (int b = a; b < d / 8; ++b, consumer.at.advance()) {
          const std::uint32_t tile = consumer.descriptor();
          Pair<T> two[tiles][2];
#pragma unroll
          for (int t = 0; t < tiles; ++t)
#pragma unroll
            for (int g = 0; g < 2; ++g) two[t][g] = pair_of<d>(queries(t), row() + 8 * g, b);
          consumer.wait();
#pragma unroll
          for (int t = 0; t < tiles; ++t) {
            products_wait<1>();  // those of the tile before with this φ
            if (t == 1 && held >= 0) consumer.release(held);
            pin(phi[t]);
            outer[t].monomials(phi[t], two[t]);
            pin(phi[t]);
            products_fence();
            add_product(sum[t], phi[t], tile);
            products_commit();
          }
          held = consumer.at.slot();
        }
      }
      products_wait<0>();
      consumer.release(held);
      pin(sum);
    }
    /// ½ ⟨q̂, q̂ Z⟩ of 64 columns of Z, whose tiles are next in the ring.
    SYMPOW_DEVICE void read_normaliser(int t, int part) {
      LeftFactors<T> left[parts];
#pragma unroll
      for (int p = 0; p < parts; ++p) load_left(left[p], queries(t).after(p * tile_entries), 16 * warp());
      pin(left);
      Accumulator z;
      auto at = consumer.at;
#pragma unroll
      for (int n = 0; n < 2 * parts; ++n, consumer.at.advance()) {
        consumer.wait();
        products_fence();
        multiply_transposed<channels_of_tile<d> / 16>(z, left[n / 2], consumer.descriptor(), n > 0);
        products_commit();
        products_wait<0>();
        if (t == tiles - 1) consumer.release(consumer.at.slot());
      }
      if (t < tiles - 1) consumer.at = at;
      pin(z);
      if (part == 0) total[t][0] = total[t][1] = 0.f;
#pragma unroll
      for (int o = 0; o < channels_of_tile<d> / 8; ++o)
#pragma unroll
        for (int g = 0; g < 2; ++g) {
          const Pair<T> pair = left[part][o / 2][o % 2 * 2 + g];
          total[t][g] += .5f * (z[o][2 * g] * block::lower(pair) + z[o][2 * g + 1] * block::upper(pair));
        }
    }
    /// From units of the state to those of the first row; rows that do not see the state begin at 0.
    SYMPOW_DEVICE void scale(const RowItem& item) {
      const double state = item.reads_state() ? ceiling(item.state_level) +
                                                    static_cast<double>(load_one(x.chunks.shift, item.state_slot))
                                              : 0.;
#pragma unroll
      for (int t = 0; t < tiles; ++t) {
        const int n = own * tiles + t;
        const bool sees = item.reads_state() && item.seen(n) < 0;
        const float unit = sees ? two_to(state - item.anchor(n)) : 0.f;
#pragma unroll
        for (auto& octet : sum[t])
#pragma unroll
          for (float& s : octet) s = sees ? s * unit : 0.f;
#pragma unroll
        for (float& s : total[t]) s = sees ? s * unit : 0.f;
      }
    }

    /// Adds what the chunk's keys give, in units of the rows.
    SYMPOW_DEVICE void add_keys(const RowItem& item) {
      scale(item);
      const int first = item.reset(first_row(item, 0)), own_block = first_row(item, 0) / block_tokens;
      const int last = own_block + (exists(item, 1) ? 1 : 0), last_seen[tiles] = {first, item.seen(own * tiles + 1)};
      LeftFactors<T> p;
      int held = -1;  // the slot of the first of the tiles that products still read
      const auto release = [&](int slot) {
#pragma unroll
        for (int n = 0; n <= parts; ++n) consumer.release((slot + n) % ring_slots);
      };
      const int last_of_item = item.last_block();
      int n = item.first_block();
      for (; n * block_tokens + block_tokens <= first; ++n) consumer.skip(parts + 1);
#pragma unroll 1
      for (; n <= last; ++n) {
        std::uint32_t keys[parts];
        const int slot = consumer.at.slot();
#pragma unroll
        for (int part = 0; part < parts; ++part, consumer.at.advance()) {
          keys[part] = consumer.descriptor();
          consumer.wait();
        }
        consumer.wait();
        const std::uint32_t values = consumer.descriptor();
        const Shared<float> weights = consumer.memory.weights(own == 0 ? slot : consumer.at.slot());
        consumer.at.advance();
#pragma unroll
        for (int t = 0; t < tiles; ++t) {
          Accumulator s;
          products_fence();
#pragma unroll
          for (int part = 0; part < parts; ++part)
            multiply_transposed<T, channels_of_tile<d> / 16>(
                s, descriptor_of(queries(t).address) + static_cast<std::uint32_t>(part) * tile_step, keys[part],
                part > 0);
          products_commit();
          products_wait<0>();
          if (held >= 0) release(held);
          held = -1;
          pin(s), pin(sum);
          const int from = n * block_tokens;
          if (from <= last_seen[t] && last_seen[t] < from + block_tokens) {  // what came before may be NaN
            forget(t);
            hide(s, last_seen[t] - from);
          }
          if (n < own_block + t)
            weigh_behind(s, p, total[t], behind(weights, t));
          else if (n == own_block + t)
            weigh_own(t, from, s, p, weights);
          else
            clear(p);
          pin(p), pin(sum);
          products_fence();
          add_product(sum[t], p, values);
          products_commit();
        }
        held = slot;
      }
      products_wait<0>();
      if (held >= 0) release(held);
      pin(sum);
      for (; n <= last_of_item; ++n) consumer.skip(parts + 1);  // keys behind the rows
    }
    /// Scores of the first `count` keys become 0.
    SYMPOW_DEVICE static void hide(Accumulator& s, int count) {
#pragma unroll
      for (int o = 0; o < 8; ++o)
#pragma unroll
        for (int r = 0; r < 4; ++r)
          if (8 * o + block::lane() % 4 * 2 + r % 2 < count) s[o][r] = 0.f;
    }

    /// p = (s w)², w the root of the key's weight times 2^-x.
    SYMPOW_DEVICE static void weigh_behind(const Accumulator& s, LeftFactors<T>& p, float (&all)[2],
                                           Shared<float> weights) {
#pragma unroll
      for (int o = 0; o < 8; ++o) {
        float weight[2];
        load(weight, weights, 8 * o + block::lane() % 4 * 2);
#pragma unroll
        for (int g = 0; g < 2; ++g) {
          float y[2];
#pragma unroll
          for (int h = 0; h < 2; ++h) {
            const float score = s[o][2 * g + h] * weight[h];
            y[h] = score * score;
            all[g] += y[h];
          }
          p[o / 2][o % 2 * 2 + g] = block::pack<T>(y[0], y[1]);
        }
      }
    }
    /// Levels of the warp's rows of a tile, relative to that of the tile's first row.
    SYMPOW_DEVICE RowLevels<2> levels_of(const RowItem& item, int t) const {
      return {x.tokens, item.token(0), first_row(item, t) + 16 * warp(), item.state_level, first_row(item, t)};
    }
    /// The tile's own block: sums go on in the units of their rows, and pairs that see each other are weighed one by
    /// one.
    SYMPOW_DEVICE void weigh_own(int t, int top, const Accumulator& s, LeftFactors<T>& p, Shared<float> weights) {
      float above[4], carry[2];
      int seen[2];
      load(above, kept_of(t), 4);
      load(carry, kept_of(t), 8);
      load(seen, kept_of(t).template as<int>(), 10);
#pragma unroll
      for (int g = 0; g < 2; ++g) {
#pragma unroll
        for (int o = 0; o < 8; ++o)
#pragma unroll
          for (int h = 0; h < 2; ++h) {
            float& y = sum[t][o][2 * g + h];
            y = carry[g] > 0.f ? y * carry[g] : 0.f;
          }
        total[t][g] = carry[g] > 0.f ? total[t][g] * carry[g] : 0.f;
      }
#pragma unroll
      for (int o = 0; o < 8; ++o) {
        const int first = 8 * o + block::lane() % 4 * 2;
        float exponent[4], inverse[2];
        load(exponent, exponents(weights), 2 * first);
        load(inverse, inverses(weights), first);
#pragma unroll
        for (int g = 0; g < 2; ++g) {
          float y[2];
#pragma unroll
          for (int h = 0; h < 2; ++h) {
            const bool is_seen = first + h <= row() + 8 * g && top + first + h >= seen[g];
            const float score = s[o][2 * g + h] * inverse[h];
            const float weight = weight_of({exponent[2 * h], exponent[2 * h + 1]}, {above[2 * g], above[2 * g + 1]});
            y[h] = is_seen ? score * score * weight : 0.f;
            total[t][g] += y[h];
          }
          p[o / 2][o % 2 * 2 + g] = block::pack<T>(y[0], y[1]);
        }
      }
    }

    SYMPOW_DEVICE void write_tiles(const RowItem& item) {
#pragma unroll 1
      for (int t = 0; t < tiles && exists(item, t); ++t) {
        write(item, t);
#pragma unroll
        for (int o = 0; o < 8; ++o)  // the second tile becomes the first
#pragma unroll
          for (int r = 0; r < 4; ++r) sum[0][o][r] = sum[1][o][r];
#pragma unroll
        for (int g = 0; g < 2; ++g) total[0][g] = total[1][g];
      }
    }

    /// The rows of tile t, whose sums are those of the first.
    SYMPOW_DEVICE void write(const RowItem& item, int t) const {
      const RowLevels<2> levels = levels_of(item, t);
      float norms[4], mass = 0.f;
      load(norms, kept_of(t), 0);
      if (item.reads_state() && levels.first_seen < 0)
        mass = load_one(x.chunks.mass, item.state_slot) * two_to(ceiling(item.state_level) - levels.anchor);
      float rows[1][9][4];
#pragma unroll
      for (int o = 0; o < 8; ++o)
#pragma unroll
        for (int r = 0; r < 4; ++r) rows[0][o][r] = sum[0][o][r];
#pragma unroll
      for (int g = 0; g < 2; ++g) {  // the normaliser in the first lane of four
        rows[0][8][2 * g] = sum_of_row(total[0][g]);
        rows[0][8][2 * g + 1] = 0.f;
        if (block::lane() % 4 != 0) rows[0][8][2 * g] = 0.f;
      }
      const RowPlaces places{
          item.block.b,     item.head, item.column / 64, item.block.begin, first_row(item, t) + 16 * warp(),
          item.block.length};
      const QueryNorms<2> of_queries{{static_cast<int>(norms[0]), static_cast<int>(norms[1])}, {norms[2], norms[3]}};
      block::warp_barrier();  // rows of the tile before have been read
      write_rows<2>(x, places, rows, levels, of_queries, mass, consumer.memory.sums(4 * own + warp()).template as<T>(),
                    0, [&](int n) { return load_one(x.tokens.sum, item.token(n)); });
    }
  };
#endif
};

}  // namespace sympow::cuda::hopper
