// What one warp instruction costs a memory, from the addresses of its lanes.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

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
        long& of_bank = in_bank[word % 32];
        if (of_bank > 0 && std::find(words.begin(), end, word) != end) continue;
        words[distinct++] = word;
        ++of_bank;
      }
    traffic.add({*std::max_element(in_bank.begin(), in_bank.end()), distinct > 0 ? 1 : 0});
  }
  return traffic;
}

/// Global memory moves sectors of 32 bytes: those that are touched, against those that the bytes would fill.
inline Traffic sectors(const Spans& spans) {
  const auto before = [](const Span& a, const Span& b) { return a.first < b.first; };
  Spans sorted = spans;
  if (!std::is_sorted(sorted.begin(), sorted.end(), before)) std::sort(sorted.begin(), sorted.end(), before);
  std::uintptr_t end = 0, bytes = 0;  // of what was counted
  long touched = 0;
  for (const Span& span : sorted) {
    const std::uintptr_t first = std::max(span.first, end), last = span.first + (span.count + 1) / 2 * 2;
    if (last <= first) continue;
    touched += static_cast<long>((last + 31) / 32 - std::max(first / 32, (end + 31) / 32));
    bytes += last - first;
    end = last;
  }
  return {touched, static_cast<long>((bytes + 31) / 32)};
}

}  // namespace sympow::cuda::block::host
