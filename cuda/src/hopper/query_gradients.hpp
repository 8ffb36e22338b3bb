// Gradients of queries for Hopper: P 2, 16 bits, d and e up to 64 or 128, a state for each key head.
#pragma once

#include "../gradient/query_gradients.hpp"
#include "state_walk.hpp"

namespace sympow::cuda::hopper {

/// dq_i as sympow::cuda::QueryGradients has it, and what flows through its tokens, with the same arguments.
///
/// A block takes items of 128 queries, 64 for each computing group, as long as there are any: first through the state
/// before the chunk, W = dŷ Sᵀ, which is contracted in registers as by KeyGradients, then through the keys before the
/// rows' own blocks, from old to new, then through their own. Beside the row's 2^{h_i - n_i} m_i sums are relative to a
/// block's `anchor`, the largest exponent of the state and the keys before, and then to the row's own, r_i, when its
/// own block adds to them. So a key before has one weight for all 64 rows, 2^{u_j - anchor} ≤ 1, made once by the group
/// that copies. What rows do not see begins at a gate of 0: keys before the last one before the block are not brought,
/// and rows behind one in the block begin anew there.
///
/// Roundings: dx to T as in the general kernel, Z to two terms of T; sums in float. Cost: 2 D e operations a row for S,
/// 4 d + 2 e a pair.
template <class T, int d, int column_tiles = 1>
struct QueryGradients {
  using General = cuda::QueryGradients<T, 2, d>;
  using Args = typename General::Args;
  static constexpr int threads = block_threads, blocks_per_multiprocessor = 1, widest = 64 * column_tiles;
  static constexpr int parts = channel_tiles<d>, pair_tiles = parts + column_tiles;  // of keys and their values
  static constexpr int shared_bytes = shared_memory_bytes + (parts - 1) * 8 * 4096;  // sums
  static constexpr int copying = parts > 1 ? 80 : copying_registers, computing = parts > 1 ? 208 : computing_registers;

  /// For a device of so many multiprocessors.
  static Blocks blocks(const Sequences& sequences, const Heads& heads, int multiprocessors) {
    return {grid_of(sequences, heads.query, multiprocessors)};
  }

  SYMPOW_DEVICE static void run([[maybe_unused]] const Args& x) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
    run_groups<T, copying, computing>(
        [&](const Memory<T>& memory) { bring_items(x, memory); },
        [&](const Memory<T>& memory, int group) { Computing(x, memory, group).run_items(); });
#endif
  }

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
 private:
  using Walk = StateTiles<T, d, true, column_tiles>;

  /// What both kinds of groups know of an item.
  struct QueryItem : Item {
    const Args& x;
    int key_head;                    ///< of keys and of the state
    double state_level = -infinity;  ///< L; -∞: S is not read

    SYMPOW_DEVICE QueryItem(const Args& args, int index) : Item(args.sequences, args.heads.query, index), x(args) {
      if (!exists()) return;
      key_head = x.heads.key_of_state(x.heads.state_of_query(head));
      if (reset(block.top) < 0) state_level = x.states.level(state_slot());
    }
    SYMPOW_DEVICE std::int64_t state_slot() const { return std::int64_t{key_head} * x.sequences.slots + block.slot; }
    /// Entries of TokenArrays and of RowArrays.
    SYMPOW_DEVICE std::int64_t token(int n) const { return state_slot() * x.sequences.chunk + n; }
    SYMPOW_DEVICE std::int64_t row(int n) const {
      return (std::int64_t{head} * x.sequences.slots + block.slot) * x.sequences.chunk + n;
    }
    SYMPOW_DEVICE int reset(int n) const { return load_one(x.tokens.reset, token(n)); }
    SYMPOW_DEVICE bool reads_state() const { return !(state_level == -infinity); }
    SYMPOW_DEVICE int first_row(int own) const { return block.top + own * block_tokens; }
    /// The first key that a row of a block sees.
    SYMPOW_DEVICE int first_key(int own) const {
      const int last_reset = reset(first_row(own));
      return last_reset < 0 ? 0 : last_reset;
    }
    /// s: dx is in units of 2^s.
    SYMPOW_DEVICE int unit() const {
      return load_one(x.of_rows.unit, std::int64_t{head} * x.sequences.slots + block.slot);
    }
    SYMPOW_DEVICE int last_block() const { return block.top / block_tokens + (exists(1) ? 1 : 0); }
    /// The exponent that sums of a block are relative to before its own keys: the largest one of the state and of the
    /// keys before; -∞ without any. NaN does not count: it is in what these keys give.
    SYMPOW_DEVICE double anchor(int own) const {
      const int first = first_row(own), last_reset = reset(first);
      double most = -infinity;
      if (last_reset < 0 && state_level > most) most = state_level;
      if (first == 0 || last_reset == first) return most;
      const double level = load_one(x.tokens.level, token(first - 1));
      return level > most ? level : most;
    }
  };

  // ---- the group that copies ----

  SYMPOW_DEVICE static void bring_items(const Args& x, const Memory<T>& memory) {
    typename Walk::Producer producer(memory);
    const int items = items_of(x);
#pragma unroll 1
    for (int index = block::block_index(0); index < items; index += static_cast<int>(gridDim.x)) {
      const QueryItem item(x, index);
      if (!item.exists()) continue;
      producer.forget();
      producer.template bring_own<parts, column_tiles>(item.block, x.queries, x.d_rows, item.head, d, x.e);
      if (item.reads_state()) Walk::bring(producer, x.states.prefixes, item.state_slot(), x.e);
      bring_keys(producer, item);
    }
  }
  SYMPOW_DEVICE static int items_of(const Args& x) {
    return x.sequences.batch * x.sequences.most_chunks() * x.heads.query * items_of_chunk(x.sequences);
  }

  /// k̂ and v of blocks of keys, tiles next to each other in the ring; beside the first one the weights of keys for the
  /// rows of group 0, beside the last one those for group 1.
  SYMPOW_DEVICE static void bring_keys(typename Walk::Producer& producer, const QueryItem& item) {
    const Args& x = item.x;
    double anchor[2];
    int first_key[2];
#pragma unroll
    for (int own = 0; own < 2; ++own) {
      const bool exists = item.exists(own);
      const double exact = exists ? item.anchor(own) : 0.;
      anchor[own] = exact == -infinity ? 0. : exact;
      first_key[own] = exists ? item.first_key(own) : 0;
    }
    const int last = item.last_block(), own_block = item.block.top / block_tokens;
#pragma unroll 1
    for (int n = first_key[0] / block_tokens; n <= last; ++n) {
      const int from = n * block_tokens;
#pragma unroll
      for (int part = 0; part < pair_tiles; ++part)
        producer.next_tile([&](Shared<T> tile, int slot) {
          const bool are_keys = part < parts;
          const auto& of = are_keys ? x.keys : x.values;
          const int channel = 64 * (are_keys ? part : part - parts), own = part > 0 ? 1 : 0;  // group
          producer.bring(tile, of.data, of.at(item.block.b, item.block.begin + from, item.key_head) + channel, of.token,
                         first_key[0] - from, item.block.length - from, (are_keys ? d : x.e) - channel);
          if (part > 0 && part < pair_tiles - 1) return;
          weigh_keys(producer.weights(slot), item, from, anchor[own], first_key[own], n == own_block + own);
        });
    }
  }
  /// Before a block of rows: a key's weight for all of them; 0 where none sees it. In the block: its exponent. A lane
  /// has two keys.
  SYMPOW_DEVICE static void weigh_keys(Shared<float> weights, const QueryItem& item, int from, double anchor,
                                       int first_key, bool is_own) {
#pragma unroll 1
    for (int place = block::lane(); place < block_tokens; place += 32) {
      const double exponent = load_one(item.x.tokens.key, item.token(from + place));
      if (is_own) {
        const TwoFloats relative = TwoFloats::of(exponent - anchor);
        const float two[2] = {relative.high, relative.low};
        store(weights, place * 2, two);
      } else {
        const bool is_seen = from + place >= first_key && !(exponent == -infinity);
        const float one[1] = {is_seen ? block::exp2(static_cast<float>(exponent - anchor)) : 0.f};
        store(weights, place, one);
      }
    }
  }

  // ---- a group that computes ----

  struct Computing : ComputingGroup<T, d, column_tiles> {
    using Base = ComputingGroup<T, d, column_tiles>;
    using Base::consumer, Base::own, Base::sums;
    const Args& x;
    Accumulator d_query[parts];

    SYMPOW_DEVICE Computing(const Args& args, const Memory<T>& memory, int group)
        : Base{{memory, {}, {}}, group}, x(args) {}

    SYMPOW_DEVICE void run_items() {
      const int items = items_of(x);
#pragma unroll 1
      for (int index = block::block_index(0); index < items; index += static_cast<int>(gridDim.x)) {
        const QueryItem item(x, index);
        if (!item.exists()) continue;
        consumer.memory.forget();
        consumer.wait_own();
        if (item.exists(own)) {
          run(item);
        } else {
          consumer.skip((item.reads_state() ? Walk::count : 0) +
                        pair_tiles * (item.last_block() - item.first_key(0) / block_tokens + 1));
          consumer.release_own();
        }
      }
    }

   private:
    /// Of the lane's rows 8 g + lane / 4: exponents, kept in the warp's part of `sums`, and what they see.
    struct Queries {
      Shared<double> memory;
      int top, first_reset;  ///< of the block: its first row, and s of that
      bool has_before;       ///< whether there is something before
      int reset[2];          ///< s_i

      SYMPOW_DEVICE Queries(const QueryItem& item, Shared<float> of_warp, int own)
          : memory(of_warp.as<double>().after(8 * block::lane())), top(item.first_row(own)) {
        const Args& x = item.x;
        const double exact_anchor = item.anchor(own);
        first_reset = item.reset(top);
        has_before = exact_anchor > -infinity && first_reset < top;
        const double own_anchor[2] = {exact_anchor == -infinity ? 0. : exact_anchor, 0.};
        double exponents[2], levels[2], units[2];
#pragma unroll
        for (int g = 0; g < 2; ++g) {
          const int i = top + Base::row() + 8 * g;
          reset[g] = item.reset(i);
          const double own_level = load_one(x.tokens.level, item.token(i));
          const double level = reset[g] < 0 ? larger(item.state_level, own_level) : own_level;
          levels[g] = level == -infinity ? 0. : level;
          exponents[g] = load_one(x.of_rows.exponent, item.row(i));
          units[g] = wide_two_to(exponents[g] + own_anchor[0] + static_cast<double>(item.unit() - 1)) *
                     static_cast<double>(load_one(x.of_rows.factor, item.row(i)));
        }
        block::warp_barrier();
        store(memory, 0, exponents);
        store(memory, 2, levels);
        store(memory, 4, units);
        store(memory, 6, own_anchor);
      }
      SYMPOW_DEVICE double exponent(int g) const { return load_one(memory, g); }   ///< h_i
      SYMPOW_DEVICE double level(int g) const { return load_one(memory, 2 + g); }  ///< r_i; 0 for -∞
      SYMPOW_DEVICE double anchor() const { return load_one(memory, 6); }          ///< 0 for -∞
      SYMPOW_DEVICE bool sees_state(int g) const { return reset[g] < 0; }
      SYMPOW_DEVICE bool sees_before(int g) const { return has_before && reset[g] == first_reset; }
      /// Of a lane's part of what a row has before the block, Σ t_ij in units of dx.
      SYMPOW_DEVICE double total(int g, float part) const {
        const double sum = coupling_of(sum_of_row(part), load_one(memory, 4 + g));
        return sees_before(g) ? sum : 0.;
      }
    };

    SYMPOW_DEVICE void run(const QueryItem& item) {
      const std::int64_t first = item.row(item.first_row(own) + Base::row());
      const float offset[2] = {load_one(x.of_rows.offset, first), load_one(x.of_rows.offset, first + 8)};
      const bool reads = item.reads_state() && item.reset(item.first_row(own)) < 0;
      float before[2] = {0.f, 0.f};  // Σ_j t_ij over what is before
      if (reads) {
        Base::template walk<false>(d_query[0], offset);
        Base::take_sums(d_query);
        Base::couple(before, d_query);
      } else {
        if (item.reads_state()) consumer.skip(Walk::count);
#pragma unroll
        for (auto& part : d_query) clear(part);
      }
      const Queries rows(item, sums().memory, own);
      const float unit = .5f * shrink_of(item);
      const float to =
          reads ? block::exp2(static_cast<float>(x.states.unit(item.state_slot(), item.state_level) - rows.anchor()))
                : 0.f;
#pragma unroll
      for (int g = 0; g < 2; ++g) {  // what others read of the state may be NaN
        before[g] = rows.sees_state(g) ? before[g] * (to * (2.f * unit)) : 0.f;
        if (block::lane() % 4 != 0) before[g] = 0.f;  // the row's total is in one of its lanes
#pragma unroll
        for (auto& part : d_query)
#pragma unroll
          for (int o = 0; o < 8; ++o)
#pragma unroll
            for (int h = 0; h < 2; ++h)
              part[o][2 * g + h] = rows.sees_state(g) ? part[o][2 * g + h] * (to * unit) : 0.f;
      }
      meet_keys(item, rows, before, offset);
      consumer.release_own();
      store_results(item, rows, before);
    }
    /// 2^-s P, s the unit of dx.
    SYMPOW_DEVICE float shrink_of(const QueryItem& item) const { return 2.f * two_to(-item.unit()); }

    /// Adds what the chunk's keys give.
    SYMPOW_DEVICE void meet_keys(const QueryItem& item, const Queries& rows, float (&before)[2],
                                 const float (&offset)[2]) {
      const float shrink = shrink_of(item);
      const float scaled[2] = {offset[0] * shrink, offset[1] * shrink};
      const int own_block = rows.top / block_tokens, first = item.first_key(own) / block_tokens;
      LeftFactors<T> dx;
      int held = -1;  // the slot of the first of the tiles that products still read
      const auto release = [&] {
        if (held < 0) return;
#pragma unroll
        for (int tile = 0; tile < pair_tiles; ++tile) consumer.release((held + tile) % ring_slots);
      };
      int n = item.first_key(0) / block_tokens;
      for (; n < first; ++n) consumer.skip(pair_tiles);
      if (x.flows.row.data) {
        group_barrier();  // all warps have read their sums, whose memory the flows take
        begin_through(item, first, own_block);
      }
#pragma unroll 1
      for (; n <= own_block; ++n) {
        if (x.flows.row.data && n < own_block) store_through(item, rows, before, n);
        const std::uint32_t keys = consumer.descriptor();
        const int slot = consumer.at.slot();
        Accumulator s;
        PairTile c;
        consumer.wait();
        for (int tile = 1; tile < parts; ++tile) {
          consumer.at.advance();
          consumer.wait();
        }
        consumer.at.advance();
        consumer.wait();
        const std::uint32_t values = consumer.descriptor();
        for (int tile = 1; tile < column_tiles; ++tile) {
          consumer.at.advance();
          consumer.wait();
        }
        products_fence();
#pragma unroll
        for (std::uint32_t p = 0; p < parts; ++p)
          multiply_transposed<T, channels_of_tile<d> / 16>(s, descriptor_of(Base::rows().address) + p * tile_step,
                                                           keys + p * tile_step, p > 0);
#pragma unroll
        for (std::uint32_t p = 0; p < column_tiles; ++p)
          multiply_transposed<T>(c[0], descriptor_of(Base::vectors().address) + p * tile_step, values + p * tile_step,
                                 p > 0);
        products_commit();
        products_wait<0>();
        release();
        held = slot;
        pin(s), pin(c), pin(d_query);
        const Shared<float> weights = consumer.memory.weights(own == 0 ? slot : consumer.at.slot());
        consumer.at.advance();
        if (n < own_block) {
          weigh_pairs(s, c[0], dx, before, weights, shrink, scaled);
        } else {
          turn_to_own(rows);
          weigh_own_pairs(s, c, dx, weights, shrink, scaled, rows);
          if (x.flows.row.data) store_inside(item, rows, c);
        }
        pin(dx), pin(d_query);
        products_fence();
#pragma unroll
        for (std::uint32_t p = 0; p < parts; ++p) add_product(d_query[p], dx, keys + p * tile_step);
        products_commit();
      }
      products_wait<0>();
      release();
      pin(d_query);
      for (; n <= item.last_block(); ++n) consumer.skip(pair_tiles);  // keys behind the rows
    }

    /// From the exponent of the block to those of the rows.
    SYMPOW_DEVICE void turn_to_own(const Queries& rows) {
#pragma unroll
      for (int g = 0; g < 2; ++g) {
        const float carry = block::exp2(static_cast<float>(rows.anchor() - rows.level(g)));
#pragma unroll
        for (auto& part : d_query)
#pragma unroll
          for (int o = 0; o < 8; ++o)
#pragma unroll
            for (int h = 0; h < 2; ++h) {
              float& sum = part[o][2 * g + h];
              sum = rows.sees_before(g) ? sum * carry : 0.f;
            }
      }
    }

    /// Pairs with keys before: dx = w s c, c with ℓ and in units of dx.
    SYMPOW_DEVICE static void weigh_pairs(const Accumulator& s, const Accumulator& c, LeftFactors<T>& dx,
                                          float (&before)[2], Shared<float> weights, float shrink,
                                          const float (&offset)[2]) {
#pragma unroll
      for (int o = 0; o < 8; ++o) {
        float weight[2];
        load(weight, weights, 8 * o + block::lane() % 4 * 2);
#pragma unroll
        for (int g = 0; g < 2; ++g) {
          float y[2];
#pragma unroll
          for (int h = 0; h < 2; ++h) {
            const float score = s[o][2 * g + h];
            y[h] = (score * weight[h]) * (c[o][2 * g + h] * shrink + offset[g]);
            before[g] += y[h] * score;
          }
          dx[o / 2][o % 2 * 2 + g] = block::pack<T>(y[0], y[1]);
        }
      }
    }

    /// Pairs of the own block, each with its own weight, of those that see each other. c becomes t.
    SYMPOW_DEVICE static void weigh_own_pairs(const Accumulator& s, PairTile& c, LeftFactors<T>& dx,
                                              Shared<float> weights, float shrink, const float (&offset)[2],
                                              const Queries& rows) {
      const TwoFloats level[2] = {TwoFloats::of(rows.level(0) - rows.anchor()),
                                  TwoFloats::of(rows.level(1) - rows.anchor())};
#pragma unroll
      for (int o = 0; o < 8; ++o) {
        float two[4];  // exponents of the lane's keys
        load(two, weights, (8 * o + block::lane() % 4 * 2) * 2);
#pragma unroll
        for (int g = 0; g < 2; ++g) {
          const int row = Base::row() + 8 * g;
          float y[2];
#pragma unroll
          for (int h = 0; h < 2; ++h) {
            const int key = 8 * o + block::lane() % 4 * 2 + h;
            const bool is_seen = key <= row && rows.top + key >= rows.reset[g];
            const float weight = weight_of({two[2 * h], two[2 * h + 1]}, level[g]);
            float& t = c[0][o][2 * g + h];
            const float score = s[o][2 * g + h], slope = (score * weight) * (t * shrink + offset[g]);
            y[h] = is_seen ? slope : 0.f;
            t = is_seen ? slope * score : 0.f;
          }
          dx[o / 2][o % 2 * 2 + g] = block::pack<T>(y[0], y[1]);
        }
      }
    }

    // ---- what flows through tokens ----

    /// Doubles of the group in shared memory, behind the exponents of two of its warps.
    SYMPOW_DEVICE Shared<double> inside() const { return flows_memory(0); }
    SYMPOW_DEVICE Shared<double> totals(int n) const { return flows_memory(1).after(n % 2 * 4); }
    SYMPOW_DEVICE Shared<double> flows_memory(int warp) const {
      return Base::sums_of(warp).template as<double>().after(256);
    }
    SYMPOW_DEVICE void group_barrier() const { block::bar_sync(1 + own, group_threads); }
    SYMPOW_DEVICE std::int64_t through(const QueryItem& item, int n) const {
      const int blocks = x.sequences.chunk / block_tokens;
      const std::int64_t slot = std::int64_t{item.head} * x.sequences.slots + item.block.slot;
      return (slot * blocks + item.first_row(own) / block_tokens) * blocks + n;
    }
    /// Nothing flows through blocks whose keys no row sees.
    SYMPOW_DEVICE void begin_through(const QueryItem& item, int first, int own_block) const {
      const double zero[1] = {0.};
      for (int n = static_cast<int>(threadIdx.x) % group_threads; n < first && n < own_block; n += group_threads)
        store(x.flows.through, through(item, n), zero);
    }
    /// Writes the total of `before` over the group's rows: of the keys before block n.
    SYMPOW_DEVICE void store_through(const QueryItem& item, const Queries& rows, const float (&before)[2],
                                     int n) const {
      const double of_warp[1] = {sum_of_column(rows.total(0, before[0]) + rows.total(1, before[1]))};
      store(totals(n), Base::warp(), of_warp, block::lane() == 0);
      group_barrier();
      if (Base::warp() == 0) store_total(x.flows.through, through(item, n), totals(n), 0);
    }
    /// Writes what flows between the tokens of the block.
    SYMPOW_DEVICE void store_inside(const QueryItem& item, const Queries& rows, const PairTile& t) const {
      double units[2];
#pragma unroll
      for (int g = 0; g < 2; ++g)
        units[g] = wide_two_to(rows.exponent(g) + rows.level(g) + static_cast<double>(item.unit() - 1)) *
                   static_cast<double>(load_one(x.of_rows.factor, item.row(rows.top + Base::row() + 8 * g)));
      write_inside(inside(), Base::warp(), t, units);
      group_barrier();
      if (Base::warp() >= 2) return;
      const int token = 32 * Base::warp() + block::lane();
      double all[1] = {0.};
#pragma unroll
      for (int w = 0; w < 4; ++w) all[0] += load_one(inside(), token + w * block_tokens);
      store(x.flows.inside, item.row(rows.top + token), all);
    }

    SYMPOW_DEVICE void store_results(const QueryItem& item, const Queries& rows, const float (&before)[2]) const {
      const int first = rows.top + 16 * Base::warp();
      float factor[2];
      double exponent[2];
#pragma unroll
      for (int g = 0; g < 2; ++g) {
        const std::int64_t at = item.row(rows.top + Base::row() + 8 * g);
        factor[g] = load_one(x.of_rows.factor, at);
        exponent[g] = rows.exponent(g) + rows.level(g) +
                      static_cast<double>(item.unit() + ceiling_log2(load_one(x.of_rows.inverse, at)));
        if (!x.flows.row.data) continue;
        const double total[1] = {rows.total(g, before[g])};
        store(x.flows.row, at, total, block::lane() % 4 == 0);
      }
      if (x.flows.row.data) group_barrier();  // all warps have read the flows
      Base::store_turned(x.d_queries, d_query, factor, exponent, x.angles.rotary, item.block, item.head, item.key_head,
                         first);
    }
  };
#endif
};

}  // namespace sympow::cuda::hopper
