// Arrays of float, double and integers in numpy's file format.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <istream>
#include <ostream>
#include <string>
#include <system_error>
#include <type_traits>
#include <variant>
#include <vector>

#include <sympow/io/machine_memory.hpp>
#include <sympow/io/npy_header.hpp>

namespace SYMPOW_NAMESPACE::io {

static_assert(std::endian::native == std::endian::little, "entries are read as they stand in the file, little-endian");

/// An array in C order.
struct Array {
  std::string name;                                               ///< for messages: option and file
  Shape shape;                                                    ///< size of every axis
  std::variant<std::vector<float>, std::vector<double>> entries;  ///< last axis fastest

  /// Whether the entries have this type.
  template <class Scalar>
  [[nodiscard]] bool holds() const {
    return std::holds_alternative<std::vector<Scalar>>(entries);
  }
  /// The entries in C order. Throws std::bad_variant_access unless they have this type.
  template <class Scalar>
  [[nodiscard]] const Scalar* data() const {
    return std::get<std::vector<Scalar>>(entries).data();
  }
  [[nodiscard]] const char* type() const { return holds<float>() ? "f4" : "f8"; }  ///< numpy's name of the type
  [[nodiscard]] std::size_t size() const {
    return std::visit([](const auto& x) { return x.size(); }, entries);
  }
  [[nodiscard]] double operator[](std::size_t n) const {
    return std::visit([n](const auto& x) { return static_cast<double>(x[n]); }, entries);
  }
};

namespace detail {

/// Reads the entries, whose type the caller has checked.
template <class Number>
std::vector<Number> read_entries(std::istream& in, std::uint64_t bytes, const std::string& name,
                                 const NpyHeader& header) {
  const std::string what = name + ": shape " + text(header.shape) + " of " + header.descr.substr(1);
  const auto count = entries_of(header.shape, sizeof(Number));
  if (!count) sympow::detail::raise<InvalidNpy>(what, " cannot be counted in 64 bits");
  if (*count * sizeof(Number) != bytes)
    sympow::detail::raise<InvalidNpy>(what, " takes ", *count * sizeof(Number), " bytes, the file has ", bytes,
                                      " after its header");
  if (bytes > machine_memory())
    sympow::detail::raise<InvalidNpy>(what, " takes ", bytes, " bytes, this machine has ", machine_memory());
  std::vector<Number> entries(*count);
  if (!in.read(reinterpret_cast<char*>(entries.data()), static_cast<std::streamsize>(bytes)))
    sympow::detail::raise<InvalidNpy>(name, ": cannot be read to its end");
  return entries;
}

/// Opens a file and returns read(stream, bytes, name).
template <class Reader>
auto read_file(const std::string& option, const std::string& path, const Reader& read) {
  const std::string name = option + " " + path;
  std::error_code error;
  if (!std::filesystem::exists(path, error)) sympow::detail::raise<InvalidNpy>(name, ": there is no such file");
  if (!std::filesystem::is_regular_file(path, error))
    sympow::detail::raise<InvalidNpy>(name, ": is not a regular file");
  const std::uint64_t bytes = std::filesystem::file_size(path, error);
  std::ifstream in(path, std::ios::binary);
  if (error || !in) sympow::detail::raise<InvalidNpy>(name, ": cannot be read");
  return read(in, bytes, name);
}

}  // namespace detail

/// Reads an array that fills a stream of `bytes` bytes, and allocates no more than these. Throws `InvalidNpy`; its
/// message begins with `name`.
inline Array read_npy(std::istream& in, std::uint64_t bytes, const std::string& name) {
  const detail::NpyHeader header = detail::read_header(in, bytes, name, {"<f4", "<f8"});
  Array array{name, header.shape, {}};
  if (header.descr == "<f4")
    array.entries = detail::read_entries<float>(in, bytes, name, header);
  else
    array.entries = detail::read_entries<double>(in, bytes, name, header);
  return array;
}

/// Reads an array from a file. Messages mention `option`. Throws `InvalidNpy`.
inline Array read_npy(const std::string& option, const std::string& path) {
  return detail::read_file(option, path, [](std::istream& in, std::uint64_t bytes, const std::string& name) {
    return read_npy(in, bytes, name);
  });
}

/// Reads an i4 or i8 array with one axis from a file. Messages mention `option`. Throws `InvalidNpy`.
inline std::vector<std::int64_t> read_whole_numbers(const std::string& option, const std::string& path) {
  return detail::read_file(option, path, [](std::istream& in, std::uint64_t bytes, const std::string& name) {
    const detail::NpyHeader header = detail::read_header(in, bytes, name, {"<i4", "<i8"});
    if (header.shape.size() != 1)
      sympow::detail::raise<InvalidNpy>(name, ": shape is ", text(header.shape), ", must have one axis");
    if (header.descr == "<i8") return detail::read_entries<std::int64_t>(in, bytes, name, header);
    const auto entries = detail::read_entries<std::int32_t>(in, bytes, name, header);
    return std::vector<std::int64_t>(entries.begin(), entries.end());
  });
}

/// Writes an array in C order, format 1.0; the entries begin at a multiple of 64 bytes.
template <class Scalar>
void write_npy(std::ostream& out, const Shape& shape, const std::vector<Scalar>& entries) {
  static_assert(std::is_same_v<Scalar, float> || std::is_same_v<Scalar, double>);
  std::string header = std::string("{'descr': '<f") + (sizeof(Scalar) == 4 ? '4' : '8') +
                       "', 'fortran_order': False, 'shape': " + text(shape) + ", }";
  constexpr std::size_t prefix_size = 10;
  header.append(63 - (prefix_size + header.size()) % 64, ' ');
  header += '\n';
  const std::array<char, prefix_size> prefix = {'\x93',
                                                'N',
                                                'U',
                                                'M',
                                                'P',
                                                'Y',
                                                1,
                                                0,
                                                static_cast<char>(header.size() % 256),
                                                static_cast<char>(header.size() / 256)};
  out.write(prefix.data(), prefix_size);
  out.write(header.data(), static_cast<std::streamsize>(header.size()));
  out.write(reinterpret_cast<const char*>(entries.data()),
            static_cast<std::streamsize>(entries.size() * sizeof(Scalar)));
}

}  // namespace SYMPOW_NAMESPACE::io
