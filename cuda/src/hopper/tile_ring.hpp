// How a block of the kernels for Hopper works: one group of four warps copies tiles to shared memory, two groups
// compute with them. Each copying warp brings every fourth tile and goes on before it has come.
#pragma once

#include <cstdint>

#include "../layout/gradients.hpp"
#include "instructions.hpp"

namespace sympow::cuda::hopper {

/// Threads of a block: group 0 copies, groups 1 and 2 compute. Each has registers for its work, 64,512 together.
inline constexpr int group_threads = 128, block_threads = 3 * group_threads;
inline constexpr int copying_registers = 72, computing_registers = 216;

/// Slots of the ring of tiles, and bytes beside each for the weights of a tile's rows.
inline constexpr int ring_slots = 8, weight_bytes = 64 * 20;

/// Rows of d channels are in so many tiles, of so many channels each.
template <int d>
inline constexpr int channel_tiles = (d + 63) / 64;
template <int d>
inline constexpr int channels_of_tile = d < 64 ? d : 64;

/// Buffers of an item's own tiles, two of four tiles, or one of eight.
template <int d>
inline constexpr int own_buffers = d > 64 ? 1 : 2;

/// Of a block, from a multiple of 1024 on: eight tiles of items' own, the ring, weights, 4096 bytes per computing warp.
inline constexpr int shared_memory_bytes = 1024 + (8 + ring_slots) * 8192 + ring_slots * weight_bytes + 8 * 4096;

/// Blocks of 64 tokens that a thread block takes at once, one for each computing group.
inline constexpr int blocks_of_item = 2;

/// Items of a chunk and head, and of all, for so many blocks an item.
SYMPOW_HOST_DEVICE int items_of_chunk(const Sequences& sequences, int blocks = blocks_of_item) {
  return (sequences.chunk / block_tokens + blocks - 1) / blocks;
}
inline std::int64_t count_items(const Sequences& sequences, int heads, int blocks = blocks_of_item) {
  return std::int64_t{sequences.batch} * sequences.most_chunks() * heads * items_of_chunk(sequences, blocks);
}

/// The largest grid of up to `multiprocessors` blocks, a block takes every n-th item, that shares no factor with the
/// items of a chunk: these differ in cost, and so every block gets some of each.
inline int grid_of(const Sequences& sequences, int heads, int multiprocessors, int blocks = blocks_of_item) {
  const std::int64_t items = count_items(sequences, heads, blocks);
  int grid = static_cast<int>(items < multiprocessors ? items : multiprocessors);
  const auto shares_factor = [&](int n) {
    int a = items_of_chunk(sequences, blocks), b = n;
    while (b != 0) {
      const int rest = a % b;
      a = b, b = rest;
    }
    return a > 1;
  };
  while (grid > 1 && shares_factor(grid)) --grid;
  return grid;
}

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

/// Tokens of a chunk and head, as the first of so many blocks of 64.
struct Item {
  TokenBlock block;
  int head;

  SYMPOW_DEVICE Item(const Sequences& sequences, int heads, int index, int blocks = blocks_of_item)
      : Item(sequences, heads, Place(sequences, heads, index, blocks)) {}
  /// The other blocks may lie beyond the end of the chunk.
  SYMPOW_DEVICE bool exists(int own = 0) const { return block.top + own * block_tokens < block.length; }

 private:
  struct Place {
    int head, block;
    SYMPOW_DEVICE Place(const Sequences& sequences, int heads, int index, int blocks) {
      const int of_chunk = items_of_chunk(sequences, blocks);
      const int chunk_and_head = index / of_chunk;
      const int chunk = chunk_and_head / heads;
      head = chunk_and_head % heads;
      block = chunk * (sequences.chunk / block_tokens) + index % of_chunk * blocks;
    }
  };
  SYMPOW_DEVICE Item(const Sequences& sequences, int, const Place& place)
      : block(sequences, place.block), head(place.head) {}
};

/// A place in a ring, and the parity of the round: as a count, in one register, or as both.
template <int slots>
struct RingCount {
  int count = 0;
  SYMPOW_DEVICE int slot() const { return (slots & (slots - 1)) == 0 ? count & (slots - 1) : count % slots; }
  SYMPOW_DEVICE int parity() const { return count / slots & 1; }
  SYMPOW_DEVICE void advance() { ++count; }
};
template <int slots>
struct RingPlace {
  int at = 0, round = 0;
  SYMPOW_DEVICE int slot() const { return at; }
  SYMPOW_DEVICE int parity() const { return round; }
  SYMPOW_DEVICE void advance() {
    if (++at == slots) at = 0, round ^= 1;
  }
};

/// Barriers of the ring and of both buffers of an item's own tiles, 8 bytes each: `full` when a tile has come, `empty`
/// when all eight computing warps have done with it.
struct Barriers {
  static constexpr int count = 2 * ring_slots + 4;
  static constexpr int arrivals = 33;  ///< of a tile: the copies of each lane, and what its warp has stored
  std::uint32_t first;
  SYMPOW_DEVICE std::uint32_t full(int slot) const { return first + 8 * static_cast<std::uint32_t>(slot); }
  SYMPOW_DEVICE std::uint32_t empty(int slot) const { return full(ring_slots + slot); }
  SYMPOW_DEVICE std::uint32_t own_full(int buffer) const { return full(2 * ring_slots + buffer); }
  SYMPOW_DEVICE std::uint32_t own_empty(int buffer) const { return full(2 * ring_slots + 2 + buffer); }
  /// By one thread.
  SYMPOW_DEVICE void init() const {
    for (int n = 0; n < ring_slots; ++n) {
      barrier_init(full(n), arrivals);
      barrier_init(empty(n), 8);
    }
    for (int n = 0; n < 2; ++n) {
      barrier_init(own_full(n), 4 * arrivals);
      barrier_init(own_empty(n), 8);
    }
    barrier_init_fence();
  }
};

/// The shared memory of a block.
template <class T>
struct Memory {
  Barriers barriers;
  std::uint32_t base;  ///< of shared_memory_bytes

  SYMPOW_DEVICE explicit Memory(const std::uint64_t* barrier_memory)
      : barriers{static_cast<std::uint32_t>(__cvta_generic_to_shared(barrier_memory))},
        base((block::Arena().next + 1023u) & ~1023u) {}
  SYMPOW_DEVICE Shared<T> own_tile(int buffer, int n) const { return tile_after(buffer * 4 + n); }
  SYMPOW_DEVICE Shared<T> tile(int slot) const { return tile_after(8 + slot); }
  SYMPOW_DEVICE Shared<float> weights(int slot) const {
    return tile_after(8 + ring_slots).template as<float>().after(slot * (weight_bytes / 4));
  }
  SYMPOW_DEVICE Shared<float> sums(int warp) const { return weights(ring_slots).after(warp * 1024); }
  /// Addresses are made again from here on: the compiler keeps none in registers.
  SYMPOW_DEVICE void forget() {
    pin(base);
    pin(barriers.first);
  }

 private:
  SYMPOW_DEVICE Shared<T> tile_after(int n) const { return {base + static_cast<std::uint32_t>(n * tile_bytes)}; }
};

/// A warp of the group that copies.
template <class T, int own_buffers = 2, int slots = ring_slots>
class Producer {
 public:
  SYMPOW_DEVICE explicit Producer(const Memory<T>& memory) : memory_(memory) {}

  /// As that of `Memory`.
  SYMPOW_DEVICE void forget() { memory_.forget(); }
  /// The next tile of the ring: write(tile, slot) by the warp whose turn it is.
  template <class Write>
  SYMPOW_DEVICE void next_tile(const Write& write) {
    if (is_mine(at_)) {
      wait_for_empty(at_);
      write(memory_.tile(at_.slot()), at_.slot());
      announce(memory_.barriers.full(at_.slot()));
    }
    at_.advance();
  }
  /// The next tile in two steps: begin(tile, slot) starts its copies, and when those of the warp's tile before have
  /// come, finish(tile, slot) completes that one: after `begin`, or before it while no slot is empty.
  template <class Begin, class Finish>
  SYMPOW_DEVICE void begin_tile(const Begin& begin, const Finish& finish) {
    if (is_mine(at_)) {
      const bool waits = !block::uniform(barrier_has_ended(memory_.barriers.empty(at_.slot()), at_.parity() ^ 1));
      if (waits) block::cp_async_commit();  // none: the tile before has all groups but the last
#pragma unroll 1
      for (int turn = 0; turn < 2; ++turn) {
        if ((turn == 0) == waits) {
          finish_tile(finish);
        } else {
          wait_for_empty(at_);
          begin(memory_.tile(at_.slot()), at_.slot());
          block::cp_async_commit();
        }
      }
      begun_ = at_.slot();
    }
    at_.advance();
  }
  /// A group of copies has been asked for since.
  template <class Finish>
  SYMPOW_DEVICE void finish_tile(const Finish& finish) const {
    if (begun_ < 0) return;
    block::cp_async_wait<1>();
    block::warp_barrier();
    finish(memory_.tile(begun_), begun_);
    publish_tiles();
    block::warp_barrier();
    if (block::lane() == 0) barrier_arrive<Barriers::arrivals>(memory_.barriers.full(begun_));
  }
  /// Completes the last tile.
  template <class Finish>
  SYMPOW_DEVICE void finish_last_tile(const Finish& finish) const {
    block::cp_async_commit();
    finish_tile(finish);
  }
  /// The next two tiles, by all four warps: write(first, second) writes a quarter of both, by ordinary stores.
  template <class Write>
  SYMPOW_DEVICE void next_tiles(const Write& write) {
    const RingCount<slots> first = at_;
    at_.advance();
    wait_for_empty(first);
    wait_for_empty(at_);
    write(memory_.tile(first.slot()), memory_.tile(at_.slot()));
    publish_tiles();
    block::bar_sync(3, group_threads);
    if (is_mine(first)) announce(memory_.barriers.full(first.slot()));
    if (is_mine(at_)) announce(memory_.barriers.full(at_.slot()));
    at_.advance();
  }
  /// Copies rows first … end - 1 of rows `distance` entries apart; the others, and channels from `channels` on, are 0.
  /// The last four octets are `gap` entries behind the first four.
  template <class U>
  SYMPOW_DEVICE void bring(Shared<T> tile, Global<U> from, std::int64_t at_first, std::int64_t distance, int first,
                           int end, int channels, int gap = 0) const {
    int row = block::lane() / 8, octet = block::lane() % 8;  // a lane has an octet of every fourth row
    pin(row);
    const bool exists = 8 * octet < channels;
    const U* source = from.data + (at_first + row * distance + 8 * octet + (octet < 4 ? 0 : gap));
    const std::uint32_t to = tile.address + 128 * row + 16 * (octet ^ row), other = to ^ 64;  // of rows 8 n, 8 n + 4
    std::int64_t step = 4 * distance;
    pin(step);
    if (first <= 0 && end >= tile_rows) {
      const int bytes = exists ? 16 : 0;
#pragma unroll 4
      for (int n = 0; n < tile_rows; n += 4, source += step)
        copy_octet((n % 8 == 0 ? to : other) + 128 * n, source, bytes);
    } else {
#pragma unroll 1
      for (int n = 0; n < tile_rows; n += 4, source += step) {
        const bool is_there = exists && row + n >= first && row + n < end;
        copy_octet((n % 8 == 0 ? to : other) + 128 * n, source, is_there ? 16 : 0);
      }
    }
  }
  /// The tiles that an item has of its own: write(tile, n) by warp n % 4.
  template <class Write>
  SYMPOW_DEVICE void next_own(const Write& write) {
    barrier_wait(memory_.barriers.own_empty(buffer_.slot()), buffer_.parity() ^ 1);
#pragma unroll
    for (int n = 0; n < 8 / own_buffers; n += 4) write(memory_.own_tile(buffer_.slot(), n + warp()), n + warp());
    announce(memory_.barriers.own_full(buffer_.slot()));
    buffer_.advance();
  }
  /// Brings rows of both blocks of an item, of `parts` tiles, and their vectors, of `columns` tiles.
  template <int parts = 1, int columns = 1>
  SYMPOW_DEVICE void bring_own(const TokenBlock& of, const Rows<const T>& rows, const Rows<const T>& vectors, int head,
                               int d, int e) {
    next_own([&](Shared<T> tile, int n) {
      constexpr bool is_wide = parts > 1;
      const bool are_rows = n < 2 * parts;
      const int own = !is_wide ? n % 2 : are_rows ? n / parts : (n - 2 * parts) / columns;
      const int channel = !is_wide ? 0 : are_rows ? n % parts * 64 : (n - 2 * parts) % columns * 64;
      const int top = of.top + own * block_tokens, left = of.length - top;
      const std::int64_t token = of.begin + top;
      if (are_rows)
        bring(tile, rows.data, rows.at(of.b, token, head) + channel, rows.token, 0, left, d - channel);
      else
        bring(tile, vectors.data, vectors.at(of.b, token, head) + channel, vectors.token, 0, left, e - channel);
    });
  }
  [[nodiscard]] SYMPOW_DEVICE Shared<float> weights(int slot) const { return memory_.weights(slot); }

 private:
  SYMPOW_DEVICE static int warp() { return static_cast<int>(threadIdx.x) / 32; }
  SYMPOW_DEVICE static bool is_mine(const RingCount<slots>& at) { return (at.count & 3) == warp(); }
  SYMPOW_DEVICE void wait_for_empty(const RingCount<slots>& at) const {
    barrier_wait(memory_.barriers.empty(at.slot()), at.parity() ^ 1);
  }
  /// Arrives for a tile when the copies that the warp has asked for have come, which it does not wait for.
  SYMPOW_DEVICE static void announce(std::uint32_t barrier) {
    barrier_arrive_with_copies(barrier);
    block::warp_barrier();
    if (block::lane() == 0) barrier_arrive(barrier);
  }

  int begun_ = -1;  ///< the slot of the warp's tile that is not finished
  Memory<T> memory_;
  RingCount<slots> at_;
  RingCount<own_buffers> buffer_;
};

/// Runs a block: bring(memory) by the group that copies, compute(memory, group) by groups 0 and 1 that compute. The
/// barriers are static memory: so the host sees that a kernel's image has a body.
template <class T, int copying = copying_registers, int computing = computing_registers, class Bring, class Compute>
SYMPOW_DEVICE void run_groups(const Bring& bring, const Compute& compute) {
  __shared__ std::uint64_t barrier_memory[Barriers::count];
  const Memory<T> memory(barrier_memory);
  if (threadIdx.x == 0) memory.barriers.init();
  block::barrier();
  const int group = block::uniform(static_cast<int>(threadIdx.x) / group_threads);
  if (group == 0) {
    release_registers<copying>();
    bring(memory);
  } else {
    take_registers<computing>();
    compute(memory, group - 1);
  }
}

/// A computing group's side of the ring.
template <class T, int own_buffers = 2, int slots = ring_slots>
struct Consumer {
  Memory<T> memory;
  RingPlace<slots> at;
  RingPlace<own_buffers> buffer;

  SYMPOW_DEVICE void wait() const { barrier_wait(memory.barriers.full(at.slot()), at.parity()); }
  SYMPOW_DEVICE void wait_own() const { barrier_wait(memory.barriers.own_full(buffer.slot()), buffer.parity()); }
  /// This warp has done with a slot whose tile has come.
  SYMPOW_DEVICE void release(int slot) const {
    if (block::lane() == 0) barrier_arrive(memory.barriers.empty(slot));
  }
  SYMPOW_DEVICE void release_own() {
    block::warp_barrier();
    if (block::lane() == 0) barrier_arrive(memory.barriers.own_empty(buffer.slot()));
    buffer.advance();
  }
  /// Gives tiles back that this group has no use for. A tile must have come first: else two rounds of a barrier mix.
  SYMPOW_DEVICE void skip(int count) {
    for (int n = 0; n < count; ++n, at.advance()) {
      wait();
      release(at.slot());
    }
  }
  /// The descriptor of the tile in the slot `at`.
  SYMPOW_DEVICE std::uint32_t descriptor() const {
    return descriptor_of(memory.tile(0).address) + static_cast<std::uint32_t>(at.slot()) * tile_step;
  }
};

#endif

}  // namespace sympow::cuda::hopper
