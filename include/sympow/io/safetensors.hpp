// Float tensors in the safetensors format of PyTorch and others.
//
//     header size in 8 bytes, little-endian · header, JSON · entries of all tensors, little-endian
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <sympow/io/commit_to_disk.hpp>
#include <sympow/io/machine_memory.hpp>
#include <sympow/io/safetensors_header.hpp>

namespace SYMPOW_NAMESPACE::io {

static_assert(std::endian::native == std::endian::little, "numbers are read and written as they stand in memory");

/// A non-owning view of a tensor. A column-major m × n matrix has the shape (n, m).
struct Tensor {
  std::string name;          ///< unique in its file
  Shape shape;               ///< sizes, slowest axis first
  std::span<float> numbers;  ///< contiguous, last index fastest
};

/// All tensors of a file, in its order, with their memory and the metadata.
struct Safetensors {
  std::vector<float> numbers;   ///< entries of all tensors
  std::vector<Tensor> tensors;  ///< views of `numbers`
  Metadata metadata;            ///< metadata of the file

  Safetensors() = default;
  Safetensors(Safetensors&&) = default;
  Safetensors& operator=(Safetensors&&) = default;
};

namespace detail {

/// The header of consecutive tensors. Throws `InvalidArgument`.
inline SafetensorsHeader make_header(std::span<const Tensor> tensors, const Metadata& metadata) {
  SafetensorsHeader header{{}, metadata};
  std::set<std::string_view> names = {"__metadata__"};
  std::size_t end = 0;
  for (const auto& [name, shape, numbers] : tensors) {
    if (!names.insert(name).second || entries_of(shape, sizeof(float)) != numbers.size())
      sympow::detail::raise<InvalidArgument>("tensor ", json(name), " of shape ", json(shape), " has ", numbers.size(),
                                             " numbers, or its name is taken");
    const std::size_t begin = std::exchange(end, end + numbers.size_bytes());
    header.entries.push_back({name, shape, begin, end});
  }
  return header;
}

/// Opens a file and reads its header; the stream is then at the first entry. Allocates at most the file size and at
/// most 100 MB.
inline SafetensorsHeader read_header(std::ifstream& in, const std::string& path) {
  std::error_code error;
  const std::uint64_t bytes = std::filesystem::file_size(path, error);
  std::uint64_t size = 0;
  if (error) refuse_safetensors(path, error.message());
  in.open(path, std::ios::binary);
  if (bytes < sizeof size || !in || !in.read(reinterpret_cast<char*>(&size), sizeof size))
    refuse_safetensors(path, "cannot be read, or is shorter than its first 8 bytes");
  const std::uint64_t remaining = bytes - sizeof size,
                      max_size = 100'000'000;  // as the reference library
  if (size > std::min(remaining, max_size))
    refuse_safetensors(path, "its header should have ", size, " bytes, can have ", std::min(remaining, max_size));
  std::string head(static_cast<std::size_t>(size), ' ');
  if (!in.read(head.data(), static_cast<std::streamsize>(size))) refuse_safetensors(path, "ends inside of its header");
  return SafetensorsReader(head, path).read(remaining - size);
}

/// Reads the entries of the next tensors.
inline void read_numbers(std::ifstream& in, const std::string& path, std::span<float> numbers) {
  if (!in.read(reinterpret_cast<char*>(numbers.data()), static_cast<std::streamsize>(numbers.size_bytes())))
    refuse_safetensors(path, "cannot be read to its end");
}

}  // namespace detail

/// The JSON header of a file of these tensors. Throws `InvalidArgument` unless sizes match shapes and names are unique.
inline std::string safetensors_header(std::span<const Tensor> tensors, const Metadata& metadata = {}) {
  return detail::json(detail::make_header(tensors, metadata));
}

/// Writes a file completely or not at all, even if the machine stops. Throws `InvalidArgument` as `safetensors_header`,
/// and `CannotWrite`.
inline void write_safetensors(const std::string& path, std::span<const Tensor> tensors, const Metadata& metadata = {}) {
  const std::string head = safetensors_header(tensors, metadata);
  const std::uint64_t size = head.size();
  OutputFile file("safetensors file", path);
  std::ostream& out = file.open();
  out.write(reinterpret_cast<const char*>(&size), sizeof size) << head;
  for (const Tensor& tensor : tensors)
    out.write(reinterpret_cast<const char*>(tensor.numbers.data()),
              static_cast<std::streamsize>(tensor.numbers.size_bytes()));
  commit_to_disk(file);
}

/// Reads a file of float tensors; allocates the file's size. Throws `InvalidSafetensors`.
inline Safetensors read_safetensors(const std::string& path) {
  std::ifstream in;
  const detail::SafetensorsHeader header = detail::read_header(in, path);
  const std::size_t bytes = header.entries.empty() ? 0 : header.entries.back().end;
  if (bytes > machine_memory())
    detail::refuse_safetensors(path, "its tensors take ", bytes, " bytes, this machine has ", machine_memory());
  Safetensors file;
  file.numbers.resize(bytes / sizeof(float));
  detail::read_numbers(in, path, file.numbers);
  for (const auto& [name, shape, begin, end] : header.entries)
    file.tensors.push_back(
        {name, shape, std::span(file.numbers).subspan(begin / sizeof(float), (end - begin) / sizeof(float))});
  file.metadata = header.metadata;
  return file;
}

/// Reads a file of exactly these tensors, in any order, and returns its metadata. Throws `InvalidSafetensors`; the
/// tensors are then unchanged unless reading the disk failed.
inline Metadata read_safetensors(const std::string& path, std::span<const Tensor> tensors) {
  using detail::json;
  std::ifstream in;
  const detail::SafetensorsHeader header = detail::read_header(in, path);
  (void)detail::make_header(tensors, {});  // validates the tensors
  std::map<std::string_view, const Tensor*> missing;
  for (const Tensor& tensor : tensors) missing[tensor.name] = &tensor;
  std::vector<std::span<float>> targets;
  for (const auto& entry : header.entries) {
    const auto found = missing.extract(entry.name);
    if (found.empty()) detail::refuse_safetensors(path, "has the tensor ", json(entry.name), ", which is not wanted");
    if (const Shape& shape = found.mapped()->shape; shape != entry.shape)
      detail::refuse_safetensors(path, "tensor ", json(entry.name), " has the shape ", json(entry.shape),
                                 ", must have ", json(shape));
    targets.push_back(found.mapped()->numbers);
  }
  if (!missing.empty()) detail::refuse_safetensors(path, "has no tensor ", json(missing.begin()->first));
  for (const std::span<float> target : targets) detail::read_numbers(in, path, target);
  return header.metadata;
}

}  // namespace SYMPOW_NAMESPACE::io
