// States and tails from slots to other slots.
#pragma once

#include "../layout/blocks.hpp"
#include "../layout/sequences.hpp"

namespace sympow::cuda {

/// For each pair i, slot to[i] becomes what slot from[i] is, or empty if from[i] is negative. Nothing is done if to[i]
/// is negative; nothing, with a fault, if an index is too large or the count of a tail is not between 0 and the
/// capacity. All numbers are copied as words of 32 bits. Of a tail only its tokens are copied.
///
/// A block has a piece of one array of a pair. Cost: the state and the tokens of the tail read and written once.
struct CopySlots {
  static constexpr int threads = 128, shared_bytes = 0, blocks_per_multiprocessor = 8;
  static constexpr int fault_of_slot = 1, fault_of_count = 2;  ///< SlotFault
  static constexpr int each = 4;                               ///< loads of a thread
  static constexpr int most_arrays = 9;

  /// [slots, groups, rows, width] of words, 16 bytes at a time if `width` is a multiple of 4. Of an empty state they
  /// are 0, each second one `fill`.
  struct Words {
    Global<const std::int32_t> from;
    Global<std::int32_t> to;
    int groups, rows, width;
    bool is_tail;  ///< only as many rows as there are tokens; none of an empty slot
    std::int32_t fill;

    [[nodiscard]] SYMPOW_HOST_DEVICE std::int64_t size() const { return std::int64_t{groups} * rows * width; }
    [[nodiscard]] SYMPOW_HOST_DEVICE std::int64_t of_block() const {
      return std::int64_t{threads} * each * (width % 4 == 0 ? 4 : 1);
    }
    [[nodiscard]] SYMPOW_HOST_DEVICE std::int64_t blocks() const { return (size() + of_block() - 1) / of_block(); }
  };

  /// The slots of one side.
  struct Side {
    Global<const std::int32_t> indices;  ///< null: pair i has slot i, or none if there are no slots
    int slots;

    [[nodiscard]] SYMPOW_DEVICE int operator[](int i) const {
      return indices.data ? block::uniform(block::load_one(indices, Lanes<std::int64_t>(i))) : slots > 0 ? i : -1;
    }
  };

  struct Args {
    Words arrays[std::size_t{most_arrays}];
    int array_count;
    Side from, to;
    Global<const std::int32_t> from_counts;  ///< null: `from` has no tails
    Global<std::int32_t> to_counts;          ///< null: `to` has none
    Global<std::int32_t> faults;             ///< by pair; null: not wanted
    int capacity;
    std::int64_t blocks_of_pair;
  };

  static Blocks blocks(int pairs, std::int64_t blocks_of_pair) { return {pairs * blocks_of_pair}; }

  SYMPOW_DEVICE static void run(const Args& x) {
    using namespace block;
    const int i = static_cast<int>(block_index(0) / x.blocks_of_pair);
    std::int64_t piece = block_index(0) % x.blocks_of_pair;
    const int from = x.from[i], to = x.to[i];
    const bool slots_exist = from < x.from.slots && to < x.to.slots;
    int count = 0;
    if (slots_exist && from >= 0 && to >= 0 && x.from_counts.data)
      count = uniform(load_one(x.from_counts, Lanes<std::int64_t>(from)));
    const bool is_count = count >= 0 && count <= x.capacity;
    if (piece == 0 && warp() == 0) {
      const Lanes<std::int32_t> fault[1] = {to < 0 ? 0 : !slots_exist ? fault_of_slot : !is_count ? fault_of_count : 0};
      const Lanes<std::int32_t> tokens[1] = {count};
      if (x.faults.data) store(x.faults, lane() + i, fault, lane() < 1);
      if (x.to_counts.data)
        store(x.to_counts, lane() + to, tokens, lane() < (to >= 0 && slots_exist && is_count ? 1 : 0));
    }
    if (to < 0 || !slots_exist || !is_count) return;
    SYMPOW_ROLL
    for (int n = 0; n < x.array_count; ++n) {
      const Words& words = x.arrays[n];
      if (piece >= 0 && piece < words.blocks()) {
        if (words.width % 4 == 0)
          copy<4>(words, piece, from, to, count);
        else
          copy<1>(words, piece, from, to, count);
      }
      piece -= words.blocks();
    }
  }

 private:
  template <int N>
  SYMPOW_DEVICE static void copy(const Words& words, std::int64_t piece, int from, int to, int count) {
    using namespace block;
    const std::int64_t size = words.size();
    SYMPOW_UNROLL
    for (int n = 0; n < each; ++n) {
      const Lanes<std::int64_t> at = (lane() + (32 * warp() + n * threads)) * N + piece * words.of_block();
      Lanes<bool> active = at < size;
      if (words.is_tail) {
        const Lanes<std::int64_t> row = at / words.width % words.rows;
        active = active && row < count;
      }
      Lanes<std::int32_t> word[std::size_t{N}];
      SYMPOW_UNROLL
      for (int k = 0; k < N; ++k) word[k] = where((at + k) % 2 == 1, words.fill, 0);
      if (from >= 0) load(word, words.from, at + from * size, active);
      store(words.to, at + to * size, word, active);
    }
  }
};

}  // namespace sympow::cuda
