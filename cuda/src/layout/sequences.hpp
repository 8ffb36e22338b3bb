// The tokens of a batch: where they lie in the caller's arrays, and in which chunks.
#pragma once

#include <cstdint>

#include "../block/block.hpp"

namespace sympow::cuda {

using block::Global, block::Lanes;

/// An array [B, T, H, D] of a caller: the channels of a token and head next to each other, and so many entries from one
/// sequence, token or head to the next. Of packed sequences `sequence` is 0, their offsets count tokens.
template <class T>
struct Rows {
  Global<T> data;
  std::int64_t sequence, token, head;

  /// The entry of channel 0.
  template <class I>
  SYMPOW_DEVICE auto at(int b, I t, int h) const {
    return t * token + (b * sequence + h * head);
  }
};

/// One sequence of the batch. Tokens of padded arrays count from 0 in each sequence, those of packed ones from `first`.
struct Sequence {
  std::int64_t first;
  int length, slot, chunks;  ///< its chunks are the slots `slot` … `slot + chunks - 1`
};

/// The sequences of a batch, cut into chunks of `chunk` tokens; the last one of a sequence can be shorter. Every chunk
/// has a slot, the place of what is kept of it in the workspace: ⌊offset_b / chunk⌋ + b + n for chunk n of sequence b,
/// so a batch of N tokens has at most ⌊N / chunk⌋ + B of them, some unused.
struct Sequences {
  Global<const std::int64_t> offsets;  ///< B + 1 of packed sequences, in tokens; null: padded ones
  Global<const std::int32_t> lengths;  ///< B of padded sequences; null: all are `longest`
  int batch, longest, chunk, slots;    ///< none is longer than `longest`, packed or padded
  /// B of padded sequences: where the rows of tails and the states of each lie; negative: it is left out. Null: at b.
  Global<const std::int32_t> places = {};

  /// Of one sequence.
  SYMPOW_HOST_DEVICE int most_chunks() const { return (longest + chunk - 1) / chunk; }

  /// Only the kernels of `fold` ask: Weights, Levels, Update and Scan.
  SYMPOW_DEVICE int place(int b) const {
    return places.data ? block::uniform(block::load_one(places, Lanes<std::int64_t>(b))) : b;
  }

  SYMPOW_DEVICE Sequence operator[](int b) const {
    std::int64_t first = 0, from = std::int64_t{b} * longest;
    int length = longest;
    if (offsets.data) {
      Lanes<std::int64_t> begin[1], end[1];
      load(begin, offsets, b);
      load(end, offsets, b + 1);
      first = from = block::uniform(begin[0]);
      length = static_cast<int>(block::uniform(end[0]) - first);
    } else if (lengths.data) {
      Lanes<std::int32_t> own[1];
      load(own, lengths, b);
      length = block::uniform(own[0]);
    }
    return {first, length, static_cast<int>(from / chunk) + b, (length + chunk - 1) / chunk};
  }
};

/// Heads in groups: neighbouring query heads share a state head, neighbouring state heads a key head (of K and V).
/// State heads are the heads of the gates: as many as key heads, or as query heads.
struct Heads {
  int query, state, key;
  SYMPOW_DEVICE int state_of_query(int h) const { return h / (query / state); }
  SYMPOW_DEVICE int key_of_state(int h) const { return h / (state / key); }
};

}  // namespace sympow::cuda
