// The header of a .npy file: https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <istream>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <sympow/core/checks.hpp>
#include <sympow/io/shape.hpp>

namespace SYMPOW_NAMESPACE::io {

/// The file is not a .npy file, or its array is not supported.
struct [[gnu::visibility("default")]] InvalidNpy : InvalidArgument {
  using InvalidArgument::InvalidArgument;
};

namespace detail {

/// The header of a .npy file.
struct NpyHeader {
  std::string descr;           ///< byte order and type, "<f8"
  bool fortran_order = false;  ///< whether the first axis is fastest
  Shape shape;                 ///< size of every axis
};

/// Parses the Python dictionary {'descr': '<f8', 'fortran_order': False, 'shape': (3, 4), }, with each key once, in any
/// order.
class NpyHeaderParser {
 public:
  /// Both arguments must outlive the parser; messages begin with `name`.
  NpyHeaderParser(std::string_view header, const std::string& name) : rest_(header), name_(name) {}

  /// Throws `InvalidNpy` unless there are exactly these three keys.
  NpyHeader parse() {
    NpyHeader header;
    bool has_descr = false, has_order = false, has_shape = false;
    expect('{');
    while (!accept('}')) {
      const std::string key = string();
      expect(':');
      if (key == "descr" && !std::exchange(has_descr, true))
        header.descr = type();
      else if (key == "fortran_order" && !std::exchange(has_order, true))
        header.fortran_order = boolean();
      else if (key == "shape" && !std::exchange(has_shape, true))
        header.shape = tuple();
      else
        refuse("has an unknown or repeated key '" + key + "'");
      if (!accept(',')) {
        expect('}');
        break;
      }
    }
    skip_space();
    if (!rest_.empty()) refuse("goes on after the dictionary");
    if (!(has_descr && has_order && has_shape)) refuse("must have the keys descr, fortran_order and shape");
    return header;
  }

 private:
  [[noreturn]] void refuse(const std::string& reason) const {
    sympow::detail::raise<InvalidNpy>(name_, ": its npy header ", reason);
  }

  void skip_space() { rest_.remove_prefix(std::min(rest_.find_first_not_of(" \t\n"), rest_.size())); }

  bool accept(char c) {
    skip_space();
    if (!rest_.starts_with(c)) return false;
    rest_.remove_prefix(1);
    return true;
  }

  void expect(char c) {
    if (!accept(c))
      refuse(std::string("lacks a '") + c + "'" +
             (rest_.empty() ? " at its end" : " before '" + std::string(rest_.substr(0, 12)) + "'"));
  }

  std::string string() {
    const char quote = accept('"') ? '"' : '\'';
    if (quote == '\'') expect('\'');
    const std::size_t end = rest_.find_first_of("'\"\\\n");
    if (end == std::string_view::npos || rest_[end] != quote) refuse("has a string without an end");
    std::string result(rest_.substr(0, end));
    rest_.remove_prefix(end + 1);
    return result;
  }

  std::string type() {
    skip_space();
    if (rest_.starts_with('[')) sympow::detail::raise<InvalidNpy>(name_, ": its entries are records, must be f4 or f8");
    return string();
  }

  bool boolean() {
    skip_space();
    for (const std::string_view word : {"True", "False"})
      if (rest_.starts_with(word)) {
        rest_.remove_prefix(word.size());
        return word == "True";
      }
    refuse("must say True or False for fortran_order");
  }

  Shape tuple() {
    Shape shape;
    expect('(');
    while (!accept(')')) {
      skip_space();
      std::ptrdiff_t size = -1;
      const auto [end, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), size);
      if (error != std::errc() || size < 0) refuse("has a shape that is not a tuple of sizes that fit 64 bits");
      rest_.remove_prefix(static_cast<std::size_t>(end - rest_.data()));
      if (rest_.starts_with('L')) rest_.remove_prefix(1);  // a long integer of Python 2
      shape.push_back(size);
      if (accept(',')) continue;
      expect(')');
      if (shape.size() == 1) refuse("has a shape that is not a tuple: (n,) must have a comma");
      break;
    }
    return shape;
  }

  std::string_view rest_;
  const std::string& name_;
};

/// Reads the header and checks its type against `types`; subtracts its size from `bytes`. Throws `InvalidNpy`.
inline NpyHeader read_header(std::istream& in, std::uint64_t& bytes, const std::string& name,
                             const std::array<const char*, 2>& types) {
  const auto read = [&](void* target, std::size_t size) {
    if (bytes < size || !in.read(static_cast<char*>(target), static_cast<std::streamsize>(size)))
      sympow::detail::raise<InvalidNpy>(name, ": ends inside of its npy header");
    bytes -= size;
  };
  std::array<unsigned char, 8> start{};  // magic string and two bytes of version
  if (bytes < start.size()) sympow::detail::raise<InvalidNpy>(name, ": is not an npy file, it has ", bytes, " bytes");
  read(start.data(), start.size());
  constexpr std::array<unsigned char, 6> magic = {0x93, 'N', 'U', 'M', 'P', 'Y'};
  if (!std::equal(magic.begin(), magic.end(), start.begin()))
    sympow::detail::raise<InvalidNpy>(name, ": is not an npy file");
  const int major = start[6], minor = start[7];
  if (major < 1 || major > 3 || minor != 0)
    sympow::detail::raise<InvalidNpy>(name, ": is an npy file of version ", major, ".", minor,
                                      ", must be 1.0, 2.0 or 3.0");

  std::array<unsigned char, 4> size{};  // header size, little-endian
  read(size.data(), major == 1 ? 2 : 4);
  const std::uint64_t header_size = std::bit_cast<std::uint32_t>(size);
  constexpr std::uint64_t max_size = 65535;  // longer headers contain names of records
  if (header_size > bytes || header_size > max_size)
    sympow::detail::raise<InvalidNpy>(name, ": its npy header should have ", header_size, " bytes, ",
                                      header_size > bytes ? "more than the file" : "must have at most 65535");
  std::string header(header_size, ' ');
  read(header.data(), header.size());
  NpyHeader result = NpyHeaderParser(header, name).parse();
  if (result.descr.starts_with('>'))
    sympow::detail::raise<InvalidNpy>(name, ": is big-endian ('", result.descr,
                                      "'), must be little-endian; see numpy's astype");
  if (result.descr != types[0] && result.descr != types[1])
    sympow::detail::raise<InvalidNpy>(name, ": entries are of type '", result.descr, "', must be '", types[0], "' or '",
                                      types[1], "'");
  // An array with one axis has the same bytes in either order, and Julia says Fortran order of all arrays.
  if (result.fortran_order && std::ranges::count_if(result.shape, [](std::ptrdiff_t n) { return n != 1; }) > 1)
    sympow::detail::raise<InvalidNpy>(name, ": is in Fortran order, must be in C order; numpy's ascontiguousarray",
                                      " converts it");
  return result;
}

}  // namespace detail

}  // namespace SYMPOW_NAMESPACE::io
