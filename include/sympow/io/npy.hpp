// Arrays of float and double in numpy's file format: https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <istream>
#include <optional>
#include <ostream>
#include <string>
#include <string_view>
#include <system_error>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include <sympow/core/checks.hpp>

namespace SYMPOW_NAMESPACE::io {

static_assert(std::endian::native == std::endian::little, "entries are read as they stand in the file, little-endian");

/// A file that is not a .npy file, or one of an array that is not taken here.
struct InvalidNpy : InvalidArgument {
  using InvalidArgument::InvalidArgument;
};

using Shape = std::vector<std::ptrdiff_t>;

/// As Python writes a tuple: "()", "(3,)", "(3, 4)".
inline std::string text(const Shape& shape) {
  std::string result = "(";
  for (std::size_t n = 0; n < shape.size(); ++n) result += (n > 0 ? ", " : "") + std::to_string(shape[n]);
  return result + (shape.size() == 1 ? ",)" : ")");
}

/// The place of entry n, in C order: "(0, 3, 1)".
inline std::string position(const Shape& shape, std::size_t n) {
  Shape index(shape.size());
  for (std::size_t axis = shape.size(); axis-- > 0;) {
    const auto size = static_cast<std::size_t>(shape[axis]);
    index[axis] = static_cast<std::ptrdiff_t>(n % size);
    n /= size;
  }
  return text(index);
}

/// The product of the axes, or nothing if so many bytes cannot be counted; an axis of 0 does not excuse the others.
inline std::optional<std::size_t> entries_of(const Shape& shape, std::size_t bytes_each) {
  std::ptrdiff_t product = static_cast<std::ptrdiff_t>(bytes_each);
  bool empty = false;
  for (const std::ptrdiff_t size : shape)
    if (size == 0)
      empty = true;
    else if (__builtin_mul_overflow(product, size, &product))
      return std::nullopt;
  return empty ? 0 : static_cast<std::size_t>(product) / bytes_each;
}

/// An array in C order.
struct Array {
  std::string name;                                               ///< for messages: the option and the file
  Shape shape;                                                    ///< the size of every axis
  std::variant<std::vector<float>, std::vector<double>> entries;  ///< the last axis running fastest

  /// Whether the entries are of this type.
  template <class Scalar>
  [[nodiscard]] bool holds() const {
    return std::holds_alternative<std::vector<Scalar>>(entries);
  }
  /// The first entry; the others follow it. Throws std::bad_variant_access unless the entries are of this type.
  template <class Scalar>
  [[nodiscard]] const Scalar* data() const {
    return std::get<std::vector<Scalar>>(entries).data();
  }
  [[nodiscard]] const char* type() const { return holds<float>() ? "f4" : "f8"; }  ///< as numpy calls it
  [[nodiscard]] std::size_t size() const {
    return std::visit([](const auto& x) { return x.size(); }, entries);
  }
  [[nodiscard]] double operator[](std::size_t n) const {
    return std::visit([n](const auto& x) { return static_cast<double>(x[n]); }, entries);
  }
};

namespace detail {

/// What the header of a .npy file says.
struct NpyHeader {
  std::string descr;           ///< byte order and type, "<f8"
  bool fortran_order = false;  ///< whether the first axis runs fastest
  Shape shape;                 ///< the size of every axis
};

/// Reads the Python dictionary {'descr': '<f8', 'fortran_order': False, 'shape': (3, 4), }, its keys in any order, once each.
class NpyHeaderParser {
 public:
  /// Both must outlive the parser; messages begin with `name`.
  NpyHeaderParser(std::string_view header, const std::string& name) : rest_(header), name_(name) {}

  /// The values of the three keys. Throws `InvalidNpy` for anything else.
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

template <class Scalar>
std::vector<Scalar> read_entries(std::istream& in, std::uint64_t bytes, const Array& array) {
  const auto count = entries_of(array.shape, sizeof(Scalar));
  if (!count)
    sympow::detail::raise<InvalidNpy>(array.name, ": shape ", text(array.shape), " of ", array.type(),
                                      " cannot be counted in 64 bits");
  if (*count * sizeof(Scalar) != bytes)
    sympow::detail::raise<InvalidNpy>(array.name, ": shape ", text(array.shape), " of ", array.type(), " takes ",
                                      *count * sizeof(Scalar), " bytes, the file has ", bytes, " after its header");
  std::vector<Scalar> entries(*count);
  if (!in.read(reinterpret_cast<char*>(entries.data()), static_cast<std::streamsize>(bytes)))
    sympow::detail::raise<InvalidNpy>(array.name, ": cannot be read to its end");
  return entries;
}

}  // namespace detail

/// Reads an array that fills a stream of `bytes` bytes; allocates no more. Throws `InvalidNpy`, whose message begins with `name`.
inline Array read_npy(std::istream& in, std::uint64_t bytes, const std::string& name) {
  const auto take = [&](void* target, std::size_t size) {
    if (bytes < size || !in.read(static_cast<char*>(target), static_cast<std::streamsize>(size)))
      sympow::detail::raise<InvalidNpy>(name, ": ends inside of its npy header");
    bytes -= size;
  };
  std::array<unsigned char, 8> start{};  // the magic string and two bytes of version
  if (bytes < start.size()) sympow::detail::raise<InvalidNpy>(name, ": is not an npy file, it has ", bytes, " bytes");
  take(start.data(), start.size());
  constexpr std::array<unsigned char, 6> magic = {0x93, 'N', 'U', 'M', 'P', 'Y'};
  if (!std::equal(magic.begin(), magic.end(), start.begin()))
    sympow::detail::raise<InvalidNpy>(name, ": is not an npy file");
  const int major = start[6], minor = start[7];
  if (major < 1 || major > 3 || minor != 0)
    sympow::detail::raise<InvalidNpy>(name, ": is an npy file of version ", major, ".", minor,
                                      ", must be 1.0, 2.0 or 3.0");

  std::array<unsigned char, 4> size{};  // of the header, little-endian
  take(size.data(), major == 1 ? 2 : 4);
  const std::uint64_t header_size = std::bit_cast<std::uint32_t>(size);
  constexpr std::uint64_t longest = 65535;  // longer ones hold the names of records
  if (header_size > bytes || header_size > longest)
    sympow::detail::raise<InvalidNpy>(name, ": its npy header should have ", header_size, " bytes, ",
                                      header_size > bytes ? "more than the file" : "must have at most 65535");
  std::string header(header_size, ' ');
  take(header.data(), header.size());
  const detail::NpyHeader said = detail::NpyHeaderParser(header, name).parse();

  Array array{name, said.shape, {}};
  if (said.descr.starts_with('>'))
    sympow::detail::raise<InvalidNpy>(name, ": is big-endian ('", said.descr,
                                      "'), must be little-endian; see numpy's astype");
  if (said.descr != "<f4" && said.descr != "<f8")
    sympow::detail::raise<InvalidNpy>(name, ": entries are of type '", said.descr, "', must be '<f4' or '<f8'");
  if (said.fortran_order)
    sympow::detail::raise<InvalidNpy>(name, ": is in Fortran order, must be in C order; see numpy's ascontiguousarray");
  if (said.descr == "<f8") array.entries = std::vector<double>();
  std::visit(
      [&]<class Scalar>(std::vector<Scalar>& entries) { entries = detail::read_entries<Scalar>(in, bytes, array); },
      array.entries);
  return array;
}

/// Reads an array from a file. `option` says in messages what the file was given for.
inline Array read_npy(const std::string& option, const std::string& path) {
  const std::string name = option + " " + path;
  std::error_code error;
  if (!std::filesystem::exists(path, error)) sympow::detail::raise<InvalidNpy>(name, ": there is no such file");
  if (!std::filesystem::is_regular_file(path, error))
    sympow::detail::raise<InvalidNpy>(name, ": is not a regular file");
  const std::uint64_t bytes = std::filesystem::file_size(path, error);
  std::ifstream in(path, std::ios::binary);
  if (error || !in) sympow::detail::raise<InvalidNpy>(name, ": cannot be read");
  return read_npy(in, bytes, name);
}

/// Writes an array in C order, format 1.0, its entries beginning at a multiple of 64 bytes.
template <class Scalar>
void write_npy(std::ostream& out, const Shape& shape, const std::vector<Scalar>& entries) {
  static_assert(std::is_same_v<Scalar, float> || std::is_same_v<Scalar, double>);
  std::string header = std::string("{'descr': '<f") + (sizeof(Scalar) == 4 ? '4' : '8') +
                       "', 'fortran_order': False, 'shape': " + text(shape) + ", }";
  constexpr std::size_t before = 10;
  header.append(63 - (before + header.size()) % 64, ' ');
  header += '\n';
  const std::array<char, before> start = {'\x93',
                                          'N',
                                          'U',
                                          'M',
                                          'P',
                                          'Y',
                                          1,
                                          0,
                                          static_cast<char>(header.size() % 256),
                                          static_cast<char>(header.size() / 256)};
  out.write(start.data(), before);
  out.write(header.data(), static_cast<std::streamsize>(header.size()));
  out.write(reinterpret_cast<const char*>(entries.data()),
            static_cast<std::streamsize>(entries.size() * sizeof(Scalar)));
}

}  // namespace SYMPOW_NAMESPACE::io
