// A checksum of bytes, identical on every machine, and files that carry one.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <istream>
#include <ostream>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <sympow/core/checks.hpp>

namespace SYMPOW_NAMESPACE {

static_assert(std::endian::native == std::endian::little, "files are little-endian, and this machine is not");

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

}  // namespace SYMPOW_NAMESPACE

namespace SYMPOW_NAMESPACE::detail {

/// So many bytes, or as many as there are: memory follows what is there, whatever a head says.
inline std::string read_bytes(std::istream& in, std::int64_t size) {
  std::string bytes, part(1 << 16, ' ');
  while (in && std::cmp_less(bytes.size(), size)) {
    in.read(part.data(), std::min<std::int64_t>(std::ssize(part), size - std::ssize(bytes)));
    bytes.append(part, 0, static_cast<std::size_t>(in.gcount()));
  }
  return bytes;
}

/// A file is 8 bytes of its kind · numbers · bytes of the body · checksum of the body · the body. Throws
/// `InvalidStateFile` if the stream fails.
inline void write_file(std::ostream& out, const char* what, const std::array<char, 8>& magic,
                       std::vector<std::int64_t> head, const std::string& body) {
  head.insert(head.end(), {std::ssize(body), std::bit_cast<std::int64_t>(checksum(std::as_bytes(std::span(body))))});
  out.write(magic.data(), std::ssize(magic));
  out.write(reinterpret_cast<const char*>(head.data()), 8 * std::ssize(head)) << body;
  if (!out.flush()) raise<InvalidStateFile>(what, ": cannot be written");
}

/// What number `at` of such a file must be.
struct ExpectedNumber {
  std::size_t at;
  const char* name;
  std::int64_t value;
};
/// Reads the numbers `head` of such a file; returns its body. Throws `InvalidStateFile`.
inline std::string read_file(std::istream& in, const char* what, const std::array<char, 8>& magic,
                             std::span<std::int64_t> head, std::initializer_list<ExpectedNumber> expected) {
  const auto refuse = [&](const auto&... words) { raise<InvalidStateFile>(what, ": ", words...); };
  std::array<char, 8> start{};
  std::array<std::int64_t, 2> of_body{};
  if (!in.read(start.data(), std::ssize(start)) || start != magic) refuse("this is not one");
  if (!in.read(reinterpret_cast<char*>(head.data()), 8 * std::ssize(head)) ||
      !in.read(reinterpret_cast<char*>(of_body.data()), sizeof of_body))
    refuse("it ends inside of its head");
  for (const auto& [at, name, value] : expected)
    if (head[at] != value) refuse(name, " is ", head[at], ", must be ", value);
  const auto [size, sum] = of_body;
  if (size < 0) refuse("a body of ", size, " bytes cannot be this state's");
  std::string body = read_bytes(in, size);
  if (std::cmp_not_equal(body.size(), size)) refuse("it ends inside of its body");
  if (checksum(std::as_bytes(std::span(body))) != std::bit_cast<std::uint64_t>(sum))
    refuse("the checksum does not match");
  return body;
}

}  // namespace SYMPOW_NAMESPACE::detail
