// Tensors of floats in files of the safetensors format, which PyTorch and others read and write.
//
//     8 bytes, little-endian: the length of the header · the header, JSON · the numbers of all tensors, little-endian
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

/// A tensor whose numbers belong to others. A column-major m × n matrix has the shape (n, m).
struct Tensor {
  std::string name;          ///< no other tensor's of its file
  Shape shape;               ///< sizes, the slowest first
  std::span<float> numbers;  ///< dense, the last index running fastest
};

/// All tensors of a file, in its order, with memory of their own, and what it says beside them.
struct Safetensors {
  std::vector<float> numbers;   ///< of all tensors, one after the other
  std::vector<Tensor> tensors;  ///< where they lie in `numbers`
  Metadata metadata;            ///< what the file says beside them

  Safetensors() = default;
  Safetensors(Safetensors&&) = default;
  Safetensors& operator=(Safetensors&&) = default;
};

namespace detail {

/// Of these tensors, one after the other. Throws `InvalidArgument`.
inline SafetensorsHeader header_of(std::span<const Tensor> tensors, const Metadata& metadata) {
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

/// Opens a file and reads its header, after which the stream stands at the first number. Memory is that of the header,
/// which is no longer than the file and 100 MB.
inline SafetensorsHeader read_header(std::ifstream& in, const std::string& path) {
  std::error_code error;
  const std::uint64_t bytes = std::filesystem::file_size(path, error);
  std::uint64_t size = 0;
  if (error) refuse_safetensors(path, error.message());
  in.open(path, std::ios::binary);
  if (bytes < sizeof size || !in || !in.read(reinterpret_cast<char*>(&size), sizeof size))
    refuse_safetensors(path, "cannot be read, or is shorter than its first 8 bytes");
  const std::uint64_t rest = bytes - sizeof size, longest = 100'000'000;  // as the format's own library has it
  if (size > std::min(rest, longest))
    refuse_safetensors(path, "its header should have ", size, " bytes, can have ", std::min(rest, longest));
  std::string head(static_cast<std::size_t>(size), ' ');
  if (!in.read(head.data(), static_cast<std::streamsize>(size))) refuse_safetensors(path, "ends inside of its header");
  return SafetensorsReader(head, path).read(rest - size);
}

/// Reads the numbers of the next tensors of a file.
inline void read_numbers(std::ifstream& in, const std::string& path, std::span<float> numbers) {
  if (!in.read(reinterpret_cast<char*>(numbers.data()), static_cast<std::streamsize>(numbers.size_bytes())))
    refuse_safetensors(path, "cannot be read to its end");
}

}  // namespace detail

/// What stands before the numbers of a file of these tensors, in JSON. Throws `InvalidArgument` unless every tensor has
/// as many numbers as its shape says and a name of its own.
inline std::string safetensors_header(std::span<const Tensor> tensors, const Metadata& metadata = {}) {
  return detail::json(detail::header_of(tensors, metadata));
}

/// Writes a file in full or not at all, also where the machine stops. Throws `InvalidArgument` as `safetensors_header`,
/// `CannotWrite`.
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

/// Reads all of a file whose tensors are of floats. Throws `InvalidSafetensors`. Memory is that of the file.
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

/// Reads a file of exactly these tensors, in any order, and returns its metadata. Throws `InvalidSafetensors`, and
/// unless the disk fails no number has changed then.
inline Metadata read_safetensors(const std::string& path, std::span<const Tensor> tensors) {
  using detail::json;
  std::ifstream in;
  const detail::SafetensorsHeader header = detail::read_header(in, path);
  (void)detail::header_of(tensors, {});  // throws if they are none
  std::map<std::string_view, const Tensor*> wanted;
  for (const Tensor& tensor : tensors) wanted[tensor.name] = &tensor;
  std::vector<std::span<float>> targets;
  for (const auto& entry : header.entries) {
    const auto found = wanted.extract(entry.name);
    if (found.empty()) detail::refuse_safetensors(path, "has the tensor ", json(entry.name), ", which is not wanted");
    if (const Shape& shape = found.mapped()->shape; shape != entry.shape)
      detail::refuse_safetensors(path, "tensor ", json(entry.name), " has the shape ", json(entry.shape),
                                 ", must have ", json(shape));
    targets.push_back(found.mapped()->numbers);
  }
  if (!wanted.empty()) detail::refuse_safetensors(path, "has no tensor ", json(wanted.begin()->first));
  for (const std::span<float> target : targets) detail::read_numbers(in, path, target);
  return header.metadata;
}

}  // namespace SYMPOW_NAMESPACE::io
