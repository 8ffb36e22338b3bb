// The JSON header of a safetensors file: https://huggingface.co/docs/safetensors
#pragma once

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <sympow/core/checks.hpp>
#include <sympow/io/shape.hpp>

namespace SYMPOW_NAMESPACE::io {

/// The file is not a safetensors file, or does not have the expected tensors; the message names it.
struct [[gnu::visibility("default")]] InvalidSafetensors : InvalidArgument {
  using InvalidArgument::InvalidArgument;
};
/// Key-value metadata of a safetensors file.
using Metadata = std::map<std::string, std::string>;

namespace detail {

template <class... Words>
[[noreturn]] void refuse_safetensors(const std::string& path, const Words&... words) {
  sympow::detail::raise<InvalidSafetensors>(path, ": ", words...);
}

/// Tensors by their byte ranges after the header, in order, and the metadata.
struct SafetensorsHeader {
  struct Entry {
    std::string name;
    Shape shape;
    std::size_t begin = 0, end = 0;
  };
  std::vector<Entry> entries;
  Metadata metadata;
};

inline std::string json(std::string_view text) {
  constexpr char digits[] = "0123456789abcdef";
  std::string result = "\"";
  for (const char c : text)
    if (static_cast<unsigned char>(c) < ' ')
      result.append("\\u00") += {digits[c / 16], digits[c % 16]};
    else
      result.append(c == '"' || c == '\\' ? "\\" : "") += c;
  return result + '"';
}

inline std::string json(const Shape& shape) {
  std::string list = "[", comma;
  for (const std::ptrdiff_t size : shape) list += std::exchange(comma, ",") + std::to_string(size);
  return list + ']';
}

/// JSON, padded with spaces to a multiple of 8 bytes.
inline std::string json(const SafetensorsHeader& header) {
  std::string text = "{\"__metadata__\":{", comma;
  for (const auto& [key, value] : header.metadata) text += std::exchange(comma, ",") + json(key) + ":" + json(value);
  text += '}';
  for (const auto& [name, shape, begin, end] : header.entries) {
    text += "," + json(name) + ":{\"dtype\":\"F32\",\"shape\":" + json(shape);
    text += ",\"data_offsets\":[" + std::to_string(begin) + "," + std::to_string(end) + "]}";
  }
  text += '}';
  return text.append((8 - text.size() % 8) % 8, ' ');
}

/// Parses a header from an untrusted file. The grammar is an object of objects, without deeper nesting.
class SafetensorsReader {
 public:
  /// Both arguments must outlive the reader.
  SafetensorsReader(std::string_view text, const std::string& path) : text_(text), path_(path) {}

  /// The header, whose tensors must fill `bytes` bytes without gap or overlap. Throws `InvalidSafetensors`.
  SafetensorsHeader read(std::uint64_t bytes) {
    SafetensorsHeader header;
    object([&](const std::string& name) {
      if (name != "__metadata__") return header.entries.push_back(entry(name));
      object([&](const std::string& key) { header.metadata[key] = string(); });
    });
    skip_space();
    if (at_ != text_.size()) fail("goes on after its end");
    std::ranges::sort(header.entries, {}, [](const auto& entry) { return std::pair(entry.begin, entry.end); });
    std::size_t at = 0;
    for (const auto& [name, shape, begin, end] : header.entries) {
      const auto size = entries_of(shape, sizeof(float));
      if (!size || end < begin || end - begin != *size * sizeof(float))
        refuse_safetensors(path_, "tensor ", json(name), " of shape ", json(shape), " cannot have the bytes ", begin,
                           " to ", end);
      if (begin != at)
        refuse_safetensors(path_, "tensor ", json(name), " begins at byte ", begin, ", the one before it ends at ", at);
      at = end;
    }
    if (at != bytes)
      refuse_safetensors(path_, "its tensors take ", at, " bytes, the file has ", bytes, " after its header");
    return header;
  }

 private:
  [[noreturn]] void fail(const std::string& reason) const {
    refuse_safetensors(path_, "its header, at byte ", at_, ", ", reason);
  }
  void skip_space() { at_ = std::min(text_.find_first_not_of(" \t\r\n", at_), text_.size()); }
  bool accept(char c) {
    skip_space();
    const bool matches = at_ < text_.size() && text_[at_] == c;
    if (matches) ++at_;
    return matches;
  }
  void expect(char c) {
    if (!accept(c)) fail(std::string("lacks a ") + c);
  }
  char next() {
    if (at_ == text_.size()) fail("has a string without an end");
    return text_[at_++];
  }

  // Reads an object with unique keys; `member` reads each value.
  template <class Member>
  void object(const Member& member) {
    std::set<std::string> keys;
    expect('{');
    if (accept('}')) return;
    do {
      const std::string key = string();
      if (!keys.insert(key).second) fail("has " + json(key) + " twice");
      expect(':');
      member(key);
    } while (accept(','));
    expect('}');
  }

  SafetensorsHeader::Entry entry(const std::string& name) {
    SafetensorsHeader::Entry entry{name, {}, 0, 0};
    int members = 0;
    object([&](const std::string& key) {
      ++members;
      if (key == "dtype") {
        if (const std::string type = string(); type != "F32") fail(json(name) + " is of " + type + ", must be of F32");
      } else if (key == "shape") {
        for (const std::size_t size : numbers()) entry.shape.push_back(static_cast<std::ptrdiff_t>(size));
      } else if (key == "data_offsets") {
        const std::vector<std::size_t> offsets = numbers();
        if (offsets.size() != 2) fail("must have 2 data_offsets");
        entry.begin = offsets[0];
        entry.end = offsets[1];
      } else {
        fail("has the unknown key " + json(key));
      }
    });
    if (members != 3) fail("must have dtype, shape and data_offsets of " + json(name));
    return entry;
  }

  // Integers that fit an index, as sizes or offsets.
  std::vector<std::size_t> numbers() {
    std::vector<std::size_t> values;
    expect('[');
    if (accept(']')) return values;
    do {
      skip_space();
      std::uint64_t number = 0;
      const auto [end, error] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), number);
      if (error != std::errc() || !std::in_range<std::ptrdiff_t>(number)) fail("must have a whole number below 2^63");
      at_ = static_cast<std::size_t>(end - text_.data());
      values.push_back(static_cast<std::size_t>(number));
    } while (accept(','));
    expect(']');
    return values;
  }

  // Bytes are copied; escapes become UTF-8.
  std::string string() {
    constexpr std::string_view letters = "\"\\/bfnrt", meanings = "\"\\/\b\f\n\r\t";
    std::string result;
    expect('"');
    for (char c = next(); c != '"'; c = next()) {
      if (static_cast<unsigned char>(c) < ' ') fail("has a control character in a string");
      if (c != '\\') {
        result += c;
      } else if (c = next(); c == 'u') {
        result += utf_8(escaped_character());
      } else {
        const std::size_t n = letters.find(c);
        if (n == std::string_view::npos) fail("has an unknown escape in a string");
        result += meanings[n];
      }
    }
    return result;
  }

  // The four hexadecimal digits after \u.
  std::uint32_t hex_digits() {
    std::uint32_t value = 0;
    const char* const digits = text_.data() + at_;
    if (text_.size() - at_ < 4 || std::from_chars(digits, digits + 4, value, 16).ptr != digits + 4)
      fail("must have four hexadecimal digits after \\u");
    at_ += 4;
    return value;
  }

  // The character after \u. Characters past U+FFFF are surrogate pairs: U+D800 + upper ten bits, U+DC00 + lower ten.
  std::uint32_t escaped_character() {
    const std::uint32_t first = hex_digits();
    if (first - 0xd800 >= 0x800) return first;
    const bool begins = first < 0xdc00 && next() == '\\' && next() == 'u';
    const std::uint32_t second = begins ? hex_digits() : 0;
    if (second - 0xdc00 >= 0x400) fail("has one half of a pair of escapes in a string");
    return 0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00);
  }

  static std::string utf_8(std::uint32_t character) {
    const auto byte = [](std::uint32_t bits) { return static_cast<char>(static_cast<unsigned char>(bits)); };
    const auto continuation = [&](int shift) { return byte(0x80 | (character >> shift & 0x3f)); };
    if (character < 0x80) return {byte(character)};
    if (character < 0x800) return {byte(0xc0 | character >> 6), continuation(0)};
    if (character < 0x10000) return {byte(0xe0 | character >> 12), continuation(6), continuation(0)};
    return {byte(0xf0 | character >> 18), continuation(12), continuation(6), continuation(0)};
  }

  std::string_view text_;
  const std::string& path_;
  std::size_t at_ = 0;
};

}  // namespace detail

}  // namespace SYMPOW_NAMESPACE::io
