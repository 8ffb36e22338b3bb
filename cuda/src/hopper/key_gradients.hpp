// Gradients of keys and values for Hopper: P 2, 16 bits, d up to 64, e up to 64, a state for each key head.
#pragma once

#include "../gradient/key_gradients.hpp"
#include "state_walk.hpp"

namespace sympow::cuda::hopper {

/// dv_j and dk_j as sympow::cuda::KeyGradients has them, with the same arguments.
///
/// A block takes items of 128 keys, 64 for each computing group, as long as there are any: first through the adjoint H
/// of the state after the chunk, then through the rows behind the keys' own blocks, then through their own.
///   H      W = v Hᵀ and dv += φ(k̂) H by the same tile of 64 monomials (a, b); then, in float, W times the channels of
///          b goes to those of a, and W times the channels of a to those of b. What Z gives is k̂ Z, Z symmetric.
///   rows   scores k̂ q̂ᵀ and c = v dŷᵀ, both from tiles, then dv += p dŷ and dk += dx q̂, p and dx from registers
/// Key j has the weight 2^{u_j}, which is common to all; beside it sums are relative to a block's `anchor`, the largest
/// exponent of the state and the rows behind, and then to the key's own, when its own block adds to them. So a row
/// behind has one weight for all 64 keys, 2^{h_i - anchor} m_i ≤ 1, made once by the group that copies.
/// A gate of 0 behind a block ends its rows, and one inside of it hides what lies behind from the keys before it.
///
/// Roundings: φ to T, pairs to T as in the general kernel, Z to two terms of T; sums in float. Cost: 6 D e operations a
/// key for H, 4 d + 4 e a pair.
template <class T, int d>
struct KeyGradients {
  using General = cuda::KeyGradients<T, 2, d>;
  using Args = typename General::Args;
  static constexpr int threads = block_threads, blocks_per_multiprocessor = 1, shared_bytes = shared_memory_bytes,
                       widest = 64;

  /// For a device of so many multiprocessors.
  static Blocks blocks(const Sequences& sequences, const Heads& heads, int multiprocessors) {
    return {grid_of(sequences, heads.key, multiprocessors)};
  }

  SYMPOW_DEVICE static void run([[maybe_unused]] const Args& x) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
    run_groups<T>([&](const Memory<T>& memory) { bring_items(x, memory); },
                  [&](const Memory<T>& memory, int group) { Computing(x, memory, group).run_items(); });
#endif
  }

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
 private:
  using Walk = StateTiles<T, d>;

  /// What both kinds of groups know of an item.
  struct KeyItem : Item {
    const Args& x;
    std::int64_t state_slot;        ///< of the key head's state
    int group;                      ///< query heads of a key head
    int first_kept;                 ///< the first key that is in the state after the chunk
    int rows_end;                   ///< behind the last row that sees one of the keys
    double state_unit = -infinity;  ///< 2^{u_j + this} is the unit of H for key j; -∞: H is not read

    SYMPOW_DEVICE KeyItem(const Args& args, int index) : Item(args.sequences, args.heads.key, index), x(args) {
      if (!exists()) return;
      state_slot = std::int64_t{head} * x.sequences.slots + block.slot;
      group = x.heads.query / x.heads.key;
      first_kept = reset(block.length - 1);
      rows_end = first_hidden_row();
      const double level = x.adjoints.level(state_slot);
      if (level != -infinity && first_kept <= last_key(1))
        state_unit = x.adjoints.unit(state_slot, level) + load_one(x.tokens.sum, token(block.length - 1));
    }
    /// Entries of TokenArrays.
    SYMPOW_DEVICE std::int64_t token(int n) const { return state_slot * x.sequences.chunk + n; }
    /// The last block of rows that a key of a block sees. Behind both blocks no row has a gate of 0 before it but those
    /// of the keys' own rows.
    SYMPOW_DEVICE int last_block(int own) const {
      const int last = (rows_end - 1) / block_tokens, behind = last_key(1) + 1;
      return own == 0 && behind < rows_end && reset(behind) > last_key(0) ? block.top / block_tokens + 1 : last;
    }
    SYMPOW_DEVICE bool reads_state() const { return !(state_unit == -infinity); }
    SYMPOW_DEVICE std::int64_t row_slot(int h) const {
      return (std::int64_t{head * group + h} * x.sequences.slots + block.slot) * x.sequences.chunk;
    }
    SYMPOW_DEVICE int reset(int n) const { return load_one(x.tokens.reset, token(n)); }
    SYMPOW_DEVICE int last_key(int own) const { return block.top + own * block_tokens + block_tokens - 1; }
    /// The exponent that sums of a block are relative to before its own rows: the largest one of H and of the rows
    /// behind; -∞ without any. NaN does not count: it is in what these rows give.
    SYMPOW_DEVICE double anchor(int own) const {
      double most = -infinity;
      if (reads_state() && first_kept <= last_key(own) && state_unit > most) most = state_unit;
      const int behind = last_key(own) + 1;
      if (behind >= rows_end || reset(behind) >= behind) return most;
      for (int h = 0; h < group; ++h) {
        const double peak = load_one(x.of_rows.peak, row_slot(h) + behind);
        if (peak > most) most = peak;
      }
      return most;
    }

   private:
    /// Resets are in order, so the first row behind a gate of 0 behind the keys is found by halving.
    SYMPOW_DEVICE int first_hidden_row() const {
      const int last = last_key(1);
      if (first_kept <= last) return block.length;
      int low = last + 1, high = first_kept;
      while (low < high) {
        const int middle = (low + high) / 2;
        if (reset(middle) > last)
          high = middle;
        else
          low = middle + 1;
      }
      return low;
    }
  };

  /// Blocks of rows in the order in which an item meets them: of each query head those behind both blocks of keys, from
  /// the last; then of each head that of the second block; then that of the first.
  struct RowBlocks {
    int first, last, heads;
    int head = 0, n;

    SYMPOW_DEVICE explicit RowBlocks(const KeyItem& item)
        : first(item.block.top / block_tokens), last(item.last_block(1)), heads(item.group), n(last) {}
    SYMPOW_DEVICE bool exist() const { return n >= first; }
    /// Whether it is the head's last block behind the keys of a group.
    SYMPOW_DEVICE bool ends_head(int own) const { return n == first + 2 || (n == first + 1 && own == 0); }
    SYMPOW_DEVICE void advance() {
      if (n > first + 2) {
        --n;
      } else if (++head < heads) {
        n = n == first + 2 ? last : n;
      } else {
        head = 0;
        --n;
      }
    }
  };

  // ---- the group that copies ----

  SYMPOW_DEVICE static void bring_items(const Args& x, const Memory<T>& memory) {
    Producer<T> producer(memory);
    const int items = items_of(x);
#pragma unroll 1
    for (int index = block::block_index(0); index < items; index += static_cast<int>(gridDim.x)) {
      const KeyItem item(x, index);
      if (!item.exists()) continue;
      producer.forget();
      producer.bring_own(item.block, x.keys, x.values, item.head, d, x.e);
      if (item.reads_state()) Walk::bring(producer, x.adjoints.prefixes, item.state_slot, x.e);
      bring_rows(producer, item);
    }
  }
  SYMPOW_DEVICE static int items_of(const Args& x) {
    return x.sequences.batch * x.sequences.most_chunks() * x.heads.key * items_of_chunk(x.sequences);
  }

  /// q̂ and dŷ of blocks of rows, two tiles next to each other in the ring; beside the first one the weights of rows
  /// for the keys of group 0, beside the second one those for group 1.
  SYMPOW_DEVICE static void bring_rows(Producer<T>& producer, const KeyItem& item) {
    const Args& x = item.x;
    double anchor[2] = {item.anchor(0), item.anchor(1)};
    for (double& a : anchor) a = a == -infinity ? 0. : a;
    const float shrink = shrink_of(item);
#pragma unroll 1
    for (RowBlocks rows(item); rows.exist(); rows.advance()) {
      const int from = rows.n * block_tokens, head = item.head * item.group + rows.head;
#pragma unroll
      for (int own = 0; own < blocks_of_item; ++own)
        producer.next_tile([&](Shared<T> tile, int slot) {
          const auto& of = own == 0 ? x.queries : x.d_rows;
          producer.bring(tile, of.data, of.at(item.block.b, item.block.begin + from, head), of.token, 0,
                         item.rows_end - from, own == 0 ? d : x.e);
          weigh_rows(producer.weights(slot), item, rows, own, anchor[own], shrink);
        });
    }
  }
  /// Behind a block of keys: a row's weight for all of them, and ℓ; 0 where no key sees the row. In the block: what
  /// pairs need to weigh each for itself. A lane has two rows.
  SYMPOW_DEVICE static void weigh_rows(Shared<float> weights, const KeyItem& item, const RowBlocks& rows, int own,
                                       double anchor, float shrink) {
    const RowArrays& of = item.x.of_rows;
#pragma unroll 1
    for (int place = block::lane(); place < block_tokens; place += 32) {
      const int row = rows.n * block_tokens + place;
      const std::int64_t at = item.row_slot(rows.head) + row;
      const double exponent = load_one(of.exponent, at);
      const float factor = load_one(of.factor, at), offset = load_one(of.offset, at) * shrink;
      const int reset[1] = {item.reset(row)};
      if (rows.n == rows.first + own) {
        const TwoFloats relative = TwoFloats::of(exponent - anchor);
        const float four[4] = {relative.high, relative.low, factor, offset};
        store(weights, place * 4, four);
        store(weights.after(4 * tile_rows).template as<int>(), place, reset);
      } else {
        const bool is_seen = reset[0] <= item.last_key(own) && !(exponent == -infinity);
        const float two[2] = {is_seen ? block::exp2(static_cast<float>(exponent - anchor)) * factor : 0.f, offset};
        store(weights, place * 2, two);
      }
    }
  }
  /// 2^-s P, s the unit of dx.
  SYMPOW_DEVICE static float shrink_of(const KeyItem& item) { return 2.f * two_to(-unit_of(item)); }
  SYMPOW_DEVICE static int unit_of(const KeyItem& item) {
    return load_one(item.x.of_rows.unit,
                    std::int64_t{item.head * item.group} * item.x.sequences.slots + item.block.slot);
  }

  // ---- a group that computes ----

  struct Computing : ComputingGroup<T, d> {
    using Base = ComputingGroup<T, d>;
    using Base::consumer, Base::own, Base::row, Base::sums;
    const Args& x;
    Accumulator d_key[1], d_value;

    SYMPOW_DEVICE Computing(const Args& args, const Memory<T>& memory, int group)
        : Base{{memory, {}, {}}, group}, x(args) {}

    SYMPOW_DEVICE void run_items() {
      const int items = items_of(x);
#pragma unroll 1
      for (int index = block::block_index(0); index < items; index += static_cast<int>(gridDim.x)) {
        const KeyItem item(x, index);
        if (!item.exists()) continue;
        consumer.memory.forget();
        consumer.wait_own();
        if (item.exists(own))
          run(item);
        else
          skip(item);
      }
    }

   private:
    SYMPOW_DEVICE void skip(const KeyItem& item) {
      int tiles = item.reads_state() ? Walk::count : 0;
      for (RowBlocks rows(item); rows.exist(); rows.advance()) tiles += 2;
      consumer.skip(tiles);
      consumer.release_own();
    }

    /// Of the lane's keys 8 g + lane / 4: exponents, kept in the warp's part of `sums`, and what they see.
    struct Keys {
      Shared<double> exponents;
      int top, first_kept;  ///< of the block; the first key that the state after the chunk has
      int first_seeing;     ///< keys before it see neither rows behind the block nor the state

      SYMPOW_DEVICE Keys(const KeyItem& item, Shared<float> memory, int own, int row)
          : exponents(memory.as<double>().after(6 * block::lane())) {
        const Args& x = item.x;
        top = item.block.top + own * block_tokens;
        const int end = top + block_tokens;
        first_kept = item.reads_state() ? item.first_kept : item.block.length;
        const double exact_anchor = item.anchor(own);
        const int last_reset = item.reset((end < item.block.length ? end : item.block.length) - 1);
        first_seeing = exact_anchor == -infinity ? end : last_reset;
        const double own_anchor[1] = {exact_anchor == -infinity ? 0. : exact_anchor};
        double both[2][2];
#pragma unroll
        for (int g = 0; g < 2; ++g) {
          const int key = top + row + 8 * g;
          const double weight = load_one(x.tokens.key, item.token(key));
          double most = key >= first_seeing ? exact_anchor : -infinity;
          for (int h = 0; h < item.group; ++h) {
            const double peak = load_one(x.of_rows.peak, item.row_slot(h) + key);
            if (peak > most) most = peak;
          }
          both[0][g] = weight == -infinity ? -load_one(x.tokens.sum, item.token(key)) : weight;
          both[1][g] = most == -infinity ? own_anchor[0] : most;
        }
        block::warp_barrier();
        store(exponents, 0, both[0]);
        store(exponents, 2, both[1]);
        store(exponents, 4, own_anchor);
      }
      /// u_j; of a key of zeros what it would be.
      SYMPOW_DEVICE double u(int g) const { return load_one(exponents, g); }
      /// 0 for -∞.
      SYMPOW_DEVICE double anchor() const { return load_one(exponents, 4); }
      /// E_j - u_j, E_j the exponent of sums.
      SYMPOW_DEVICE double largest(int g) const { return load_one(exponents, 2 + g); }
      SYMPOW_DEVICE bool is_kept(int row, int g) const { return top + row + 8 * g >= first_kept; }
      SYMPOW_DEVICE bool sees_behind(int row, int g) const { return top + row + 8 * g >= first_seeing; }
    };

    SYMPOW_DEVICE void run(const KeyItem& item) {
      if (item.reads_state()) {
        const float one[2] = {1.f, 1.f};
        Base::template walk<true>(d_value, one);
        Base::take_sums(d_key);
      } else {
        clear(d_key[0]);
        clear(d_value);
      }
      const Keys keys(item, sums().memory, own, row());
      if (x.flows.later.data) store_later(item, keys);
      const float unit = .5f * shrink_of(item);
#pragma unroll
      for (int g = 0; g < 2; ++g) {
        const float to = block::exp2(static_cast<float>(item.state_unit - keys.anchor()));
#pragma unroll
        for (int o = 0; o < 8; ++o)
#pragma unroll
          for (int h = 0; h < 2; ++h) {  // what a state that others read gives may be NaN
            float &k = d_key[0][o][2 * g + h], &v = d_value[o][2 * g + h];
            k = keys.is_kept(row(), g) ? k * (to * unit) : 0.f;
            v = keys.is_kept(row(), g) ? v * to : 0.f;
          }
      }
      meet_rows(item, keys);
      consumer.release_own();
      store_results(item, keys);
    }

    /// Writes Σ t_ij over rows in later chunks.
    SYMPOW_DEVICE void store_later(const KeyItem& item, const Keys& keys) const {
      float sum[2];
      Base::couple(sum, d_key);
#pragma unroll
      for (int g = 0; g < 2; ++g) {
        const double of_state = coupling_of(sum[g], wide_two_to(keys.u(g) + item.state_unit));
        const double total[1] = {keys.is_kept(row(), g) ? of_state : 0.};
        store(x.flows.later, item.token(first_key(item) + row() + 8 * g), total, block::lane() % 4 == 0);
      }
    }
    SYMPOW_DEVICE int first_key(const KeyItem& item) const { return item.block.top + own * block_tokens; }

    /// Adds what the chunk's rows give.
    SYMPOW_DEVICE void meet_rows(const KeyItem& item, const Keys& keys) {
      const float shrink = shrink_of(item);
      float after[2] = {0.f, 0.f};  // Σ_i t_ij over rows behind, of one query head
      LeftFactors<T> p, dx;
      int held = -1;  // the slot of the first of both tiles that products still read
      const auto release = [&] {
        if (held < 0) return;
        consumer.release(held);
        consumer.release((held + 1) % ring_slots);
      };
      RowBlocks rows(item);
      const int last = item.last_block(own);
      for (; rows.n > last; rows.advance()) consumer.skip(2);
#pragma unroll 1
      for (; rows.exist() && rows.n >= rows.first + own; rows.advance()) {
        const std::uint32_t queries = consumer.descriptor();
        const int slot = consumer.at.slot();
        Accumulator s, c;
        consumer.wait();
        consumer.at.advance();
        consumer.wait();
        const std::uint32_t d_rows = consumer.descriptor();
        products_fence();
        multiply_transposed<T, d / 16>(s, descriptor_of(Base::rows().address), queries);
        multiply_transposed<T>(c, descriptor_of(Base::vectors().address), d_rows);
        products_commit();
        products_wait<0>();
        release();
        held = slot;
        pin(s), pin(c), pin(d_key), pin(d_value);
        const Shared<float> weights = consumer.memory.weights(own == 0 ? slot : consumer.at.slot());
        consumer.at.advance();
        if (rows.n > rows.first + own) {
          weigh_pairs(s, c, p, dx, after, weights, shrink);
        } else {
          if (rows.head == 0) turn_to_own(keys);
          weigh_own_pairs(s, c, p, dx, weights, shrink, keys);
        }
        pin(p), pin(dx), pin(d_key), pin(d_value);
        products_fence();
        add_product(d_value, p, d_rows);
        add_product(d_key[0], dx, queries);
        products_commit();
        if (x.flows.key.data && (rows.ends_head(own) || rows.last == rows.first + own))
          store_after(item, rows, keys, after, rows.n == rows.first + 1 && last > rows.n);
      }
      products_wait<0>();
      release();
      pin(d_key), pin(d_value);
      for (; rows.exist(); rows.advance()) consumer.skip(2);  // rows before the keys
    }

    /// From the exponent of the block to those of the keys.
    SYMPOW_DEVICE void turn_to_own(const Keys& keys) {
#pragma unroll
      for (int g = 0; g < 2; ++g) {
        const float carry = block::exp2(static_cast<float>(keys.anchor() - keys.largest(g)));
#pragma unroll
        for (int o = 0; o < 8; ++o)
#pragma unroll
          for (int h = 0; h < 2; ++h) {
            float &k = d_key[0][o][2 * g + h], &v = d_value[o][2 * g + h];
            k = keys.sees_behind(row(), g) ? k * carry : 0.f;
            v = keys.sees_behind(row(), g) ? v * carry : 0.f;
          }
      }
    }

    /// Pairs with rows behind: p = w s², dx = w s c, c with ℓ and in units of dx.
    SYMPOW_DEVICE static void weigh_pairs(const Accumulator& s, const Accumulator& c, LeftFactors<T>& p,
                                          LeftFactors<T>& dx, float (&after)[2], Shared<float> weights, float shrink) {
#pragma unroll
      for (int o = 0; o < 8; ++o) {
        float two[4];  // weight and ℓ of the lane's rows
        load(two, weights, (8 * o + block::lane() % 4 * 2) * 2);
#pragma unroll
        for (int g = 0; g < 2; ++g) {
          float x[2], y[2];
#pragma unroll
          for (int h = 0; h < 2; ++h) {
            const float score = s[o][2 * g + h], steep = score * two[2 * h];
            const float coupling = c[o][2 * g + h] * shrink + two[2 * h + 1];
            x[h] = steep * score;
            y[h] = steep * coupling;
            after[g] += x[h] * coupling;
          }
          p[o / 2][o % 2 * 2 + g] = block::pack<T>(x[0], x[1]);
          dx[o / 2][o % 2 * 2 + g] = block::pack<T>(y[0], y[1]);
        }
      }
    }

    /// Pairs of the own block, each with its own weight, of those that see each other.
    SYMPOW_DEVICE void weigh_own_pairs(const Accumulator& s, const Accumulator& c, LeftFactors<T>& p,
                                       LeftFactors<T>& dx, Shared<float> weights, float shrink,
                                       const Keys& keys) const {
      const TwoFloats largest[2] = {TwoFloats::of(keys.largest(0) - keys.anchor()),
                                    TwoFloats::of(keys.largest(1) - keys.anchor())};
      const int top = keys.top;
#pragma unroll
      for (int o = 0; o < 8; ++o) {
        float of_row[2][4];
        int reset[2];
#pragma unroll
        for (int h = 0; h < 2; ++h) load(of_row[h], weights, (8 * o + block::lane() % 4 * 2 + h) * 4);
        load(reset, weights.after(4 * tile_rows).template as<int>(), 8 * o + block::lane() % 4 * 2);
#pragma unroll
        for (int g = 0; g < 2; ++g) {
          const int key = row() + 8 * g;
          float x[2], y[2];
#pragma unroll
          for (int h = 0; h < 2; ++h) {
            const bool is_seen = 8 * o + block::lane() % 4 * 2 + h >= key && reset[h] <= top + key;
            const float weight = weight_of({of_row[h][0], of_row[h][1]}, largest[g]) * of_row[h][2];
            const float score = s[o][2 * g + h], steep = score * weight;
            x[h] = is_seen ? steep * score : 0.f;
            y[h] = is_seen ? steep * (c[o][2 * g + h] * shrink + of_row[h][3]) : 0.f;
          }
          p[o / 2][o % 2 * 2 + g] = block::pack<T>(x[0], x[1]);
          dx[o / 2][o % 2 * 2 + g] = block::pack<T>(y[0], y[1]);
        }
      }
    }

    /// Writes Σ_i t_ij over the rows of a query head behind the block; that of `adds` is added to the others.
    SYMPOW_DEVICE void store_after(const KeyItem& item, const RowBlocks& rows, const Keys& keys, float (&after)[2],
                                   bool adds) const {
#pragma unroll
      for (int g = 0; g < 2; ++g) {
        const std::int64_t at = item.row_slot(rows.head) + first_key(item) + row() + 8 * g;
        const double unit = wide_two_to(keys.u(g) + keys.anchor() + static_cast<double>(unit_of(item) - 1));
        const float sum = sum_of_row(after[g]);
        double total[1] = {keys.sees_behind(row(), g) ? coupling_of(sum, unit) : 0.};
        if (adds && block::lane() % 4 == 0) total[0] += load_one(x.flows.key, at);
        store(x.flows.key, at, total, block::lane() % 4 == 0);
        after[g] = 0.f;
      }
    }

    SYMPOW_DEVICE void store_results(const KeyItem& item, const Keys& keys) {
      const int first = first_key(item) + 16 * Base::warp(), left = item.block.length - first;
      const std::int64_t token = item.block.begin + first;
      const float one[2] = {1.f, 1.f};
      double exponent[2] = {keys.u(0) + keys.largest(0), keys.u(1) + keys.largest(1)};
      const Shared<T> staging = sums().memory.template as<T>();
      store_sums<64>(x.d_values, x.d_values.at(item.block.b, token, item.head), d_value, one, exponent, staging, 0,
                     left, x.e);
      block::warp_barrier();
#pragma unroll
      for (int g = 0; g < 2; ++g) {
        const float inverse = load_one(x.tokens.inverse, item.token(first + block::lane() / 4 + 8 * g));
        exponent[g] += static_cast<double>(unit_of(item) + (inverse == 0.f ? 0 : ceiling_log2(inverse)));
      }
      Base::store_turned(x.d_keys, d_key, one, exponent, x.angles.rotary, item.block, item.head, item.head, first);
    }
  };
#endif
};

}  // namespace sympow::cuda::hopper
