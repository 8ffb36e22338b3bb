// Tensors of floats in files of the safetensors format, which PyTorch and others read and write.
//
//     8 bytes, little-endian: the length of the header · the header, JSON · the numbers of all tensors, little-endian
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <span>

#include <sympow/io/output_file.hpp>

#include "safetensors_header.hpp"

namespace language_model {

/// Numbers of a model. A column-major m × n matrix has the shape (n, m).
struct Tensor {
  std::string name;
  Shape shape;
  std::span<float> numbers;
};

/// The header of a file of these tensors, one after the other. Throws `sympow::InvalidArgument`.
inline Header header_of(std::span<const Tensor> tensors, const Metadata& metadata) {
  Header header{{}, metadata};
  std::set<std::string_view> names = {"__metadata__"};
  std::uint64_t end = 0;
  for (const auto& [name, shape, numbers] : tensors) {
    if (!names.insert(name).second || sympow::io::entries_of(shape, sizeof(float)) != numbers.size())
      sympow::detail::raise<sympow::InvalidArgument>("tensor ", json(name), " of shape ", json(shape), " has ",
                                                     numbers.size(), " numbers, or its name is taken");
    const std::uint64_t begin = std::exchange(end, end + numbers.size_bytes());
    header.entries.push_back({name, shape, begin, end});
  }
  return header;
}

/// Returns when a file or folder is on the disk. Throws `sympow::io::CannotWrite`.
inline void synchronize(const std::filesystem::path& path) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  const int error = file < 0 || ::fsync(file) != 0 ? errno : 0;
  if (file >= 0) ::close(file);
  if (error != 0 && error != EINVAL)  // which says that this file system cannot
    sympow::detail::raise<sympow::io::CannotWrite>(path.string(), ": ", std::generic_category().message(error));
}

/// Writes a file in full or not at all, also where the machine stops. Throws `sympow::io::CannotWrite`.
inline void write_safetensors(const std::string& path, std::span<const Tensor> tensors, const Metadata& metadata = {}) {
  const std::string head = json(header_of(tensors, metadata));
  const std::uint64_t size = head.size();
  sympow::io::OutputFile file("safetensors file", path);
  std::ostream& out = file.open();
  out.write(reinterpret_cast<const char*>(&size), sizeof size) << head;
  for (const auto& [name, shape, numbers] : tensors)
    out.write(reinterpret_cast<const char*>(numbers.data()), static_cast<std::streamsize>(numbers.size_bytes()));
  file.finish();
  if (file.is_device()) return file.commit();
  synchronize(file.partial());
  file.commit();
  synchronize(absolute(file.partial()).parent_path());
}

/// Opens a file and reads its header, after which the stream stands at the first number. Throws `InvalidSafetensors`.
/// Memory is that of the header, which is no longer than the file and 100 MB.
inline Header read_header(std::ifstream& in, const std::string& path) {
  std::error_code error;
  const std::uint64_t bytes = std::filesystem::file_size(path, error);
  std::uint64_t size = 0;
  if (error) refuse(path, error.message());
  in.open(path, std::ios::binary);
  if (bytes < sizeof size || !in || !in.read(reinterpret_cast<char*>(&size), sizeof size))
    refuse(path, "cannot be read, or is shorter than its first 8 bytes");
  const std::uint64_t rest = bytes - sizeof size, longest = 100'000'000;  // as the format's own library has it
  if (size > std::min(rest, longest))
    refuse(path, "its header should have ", size, " bytes, can have ", std::min(rest, longest));
  std::string head(size, ' ');
  if (!in.read(head.data(), static_cast<std::streamsize>(size))) refuse(path, "ends inside of its header");
  return HeaderReader(head, path).read(rest - size);
}

/// Reads the numbers of the next tensor of a file.
inline void read_numbers(std::ifstream& in, const std::string& path, std::span<float> numbers) {
  if (!in.read(reinterpret_cast<char*>(numbers.data()), static_cast<std::streamsize>(numbers.size_bytes())))
    refuse(path, "cannot be read to its end");
}

/// Reads a file of exactly these tensors, in any order, and returns its metadata. Throws `InvalidSafetensors`, and
/// unless the disk fails no number has changed then.
inline Metadata read_safetensors(const std::string& path, std::span<const Tensor> tensors) {
  std::ifstream in;
  const Header header = read_header(in, path);
  header_of(tensors, {});  // throws if they are none
  std::map<std::string_view, const Tensor*> wanted;
  for (const Tensor& tensor : tensors) wanted[tensor.name] = &tensor;
  std::vector<std::span<float>> targets;
  for (const Header::Entry& entry : header.entries) {
    const auto found = wanted.extract(entry.name);
    if (found.empty()) refuse(path, "has the tensor ", json(entry.name), ", which is not wanted");
    if (const Shape& shape = found.mapped()->shape; shape != entry.shape)
      refuse(path, "tensor ", json(entry.name), " has the shape ", json(entry.shape), ", must have ", json(shape));
    targets.push_back(found.mapped()->numbers);
  }
  if (!wanted.empty()) refuse(path, "has no tensor ", json(wanted.begin()->first));
  for (const std::span<float> target : targets) read_numbers(in, path, target);
  return header.metadata;
}

}  // namespace language_model
