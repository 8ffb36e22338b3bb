// A checksum of bytes, identical on every machine.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include <sympow/core/config.hpp>

namespace SYMPOW_NAMESPACE::io {

static_assert(std::endian::native == std::endian::little, "words are read as they stand in memory, little-endian");

/// Mixes in the size and every 8-byte word, the last one zero-padded: a multiplication spreads low bits up, a shift
/// spreads high bits down. Detects every change within one word; not secure against attacks. `sum` continues a checksum
/// of preceding bytes.
inline std::uint64_t checksum(std::span<const std::byte> bytes, std::uint64_t sum = 0) {
  const auto add = [&](const void* data, std::size_t size) {
    std::uint64_t word = 0;
    std::memcpy(&word, data, size);
    sum = (sum ^ word) * 0x9e3779b97f4a7c15;  // 2⁶⁴ / golden ratio
    sum ^= sum >> 32;
  };
  const std::uint64_t size = bytes.size();
  add(&size, sizeof size);
  for (; bytes.size() >= 8; bytes = bytes.subspan(8)) add(bytes.data(), 8);
  if (!bytes.empty()) add(bytes.data(), bytes.size());
  return sum;
}

}  // namespace SYMPOW_NAMESPACE::io
