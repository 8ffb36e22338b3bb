// A checksum of bytes, the same on every machine.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include <sympow/core/config.hpp>

namespace SYMPOW_NAMESPACE::io {

static_assert(std::endian::native == std::endian::little, "words are read as they stand in memory, little-endian");

/// For the size and every word of 8 bytes, the last filled up by zeros, a product that carries low bits up and a shift
/// that carries high bits down. A change within one word is always seen; damage is, attack is not. `sum` is that of the
/// bytes before, if any.
inline std::uint64_t checksum(std::span<const std::byte> bytes, std::uint64_t sum = 0) {
  const auto add = [&](const void* data, std::size_t size) {
    std::uint64_t word = 0;
    std::memcpy(&word, data, size);
    sum = (sum ^ word) * 0x9e3779b97f4a7c15;  // 2⁶⁴ over the golden ratio
    sum ^= sum >> 32;
  };
  const std::uint64_t size = bytes.size();
  add(&size, sizeof size);
  for (; bytes.size() >= 8; bytes = bytes.subspan(8)) add(bytes.data(), 8);
  if (!bytes.empty()) add(bytes.data(), bytes.size());
  return sum;
}

}  // namespace SYMPOW_NAMESPACE::io
