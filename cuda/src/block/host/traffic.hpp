// What one warp instruction costs a memory, from the addresses of its lanes.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "report.hpp"

namespace sympow::cuda::block::host {

/// The bytes that a lane accesses; count 0: none.
struct Span {
  std::uintptr_t first = 0;
  unsigned count = 0;
};
using Spans = std::array<Span, 32>;

/// Shared memory serves 128 bytes of lanes at a time (lanes 0 … 31 of 4 bytes, 0 … 15 of 8, 0 … 7 of 16, and so on),
/// in as many wavefronts as the fullest of its 32 banks of 4 bytes has words to give.
inline Traffic wavefronts(const Spans& spans, unsigned bytes) {
  Traffic traffic;
  const std::size_t at_once = 32 / std::max(1u, bytes / 4);
  for (std::size_t begin = 0; begin < 32; begin += at_once) {
    std::array<std::uintptr_t, 32> words{};
    std::array<long, 32> in_bank{};
    std::size_t distinct = 0;
    for (std::size_t l = begin; l < begin + at_once; ++l)
      for (unsigned b = 0; b < spans[l].count; b += 4) {
        const std::uintptr_t word = (spans[l].first + b) / 4;
        const auto end = words.begin() + static_cast<std::ptrdiff_t>(distinct);
        if (std::find(words.begin(), end, word) != end) continue;
        words[distinct++] = word;
        ++in_bank[word % 32];
      }
    traffic.add({*std::max_element(in_bank.begin(), in_bank.end()), distinct > 0 ? 1 : 0});
  }
  return traffic;
}

/// Global memory moves sectors of 32 bytes: those that are touched, against those that the bytes would fill.
inline Traffic sectors(const Spans& spans) {
  std::vector<std::uintptr_t> pieces;  // of 2 bytes
  for (const Span& span : spans)
    for (unsigned b = 0; b < span.count; b += 2) pieces.push_back((span.first + b) / 2);
  std::sort(pieces.begin(), pieces.end());
  pieces.erase(std::unique(pieces.begin(), pieces.end()), pieces.end());
  Traffic traffic{0, static_cast<long>((pieces.size() + 15) / 16)};
  for (std::size_t i = 0; i < pieces.size(); ++i)
    if (i == 0 || pieces[i] / 16 != pieces[i - 1] / 16) ++traffic.transactions;
  return traffic;
}

}  // namespace sympow::cuda::block::host
