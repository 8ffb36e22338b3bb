// Checkpoints of a run: a folder of safetensors files, each of which is whole or known not to be.
#pragma once

#include <charconv>
#include <filesystem>
#include <iostream>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <sympow/io/safetensors.hpp>

#include "checksum.hpp"

namespace language_model {

using sympow::io::Metadata, sympow::io::Tensor;

/// A whole checkpoint, for `read_safetensors`.
struct Checkpoint {
  std::string path;
  sympow::Index step = 0;
  Metadata metadata;
};

/// "step-00001200.safetensors"
inline std::string checkpoint_name(sympow::Index step) {
  const std::string digits = std::to_string(step);
  return "step-" + std::string(8 - std::min<std::size_t>(digits.size(), 8), '0') + digits + ".safetensors";
}

/// The paths of a folder's checkpoints, whole or not, by their steps; none if there is no folder.
inline std::map<sympow::Index, std::filesystem::path> checkpoints_in(const std::filesystem::path& folder) {
  std::map<sympow::Index, std::filesystem::path> found;
  if (!std::filesystem::exists(folder)) return found;
  for (const auto& file : std::filesystem::directory_iterator(folder)) {
    const std::string name = file.path().filename().string();
    sympow::Index step = 0;
    if (name.starts_with("step-")) std::from_chars(name.data() + 5, name.data() + name.size(), step);
    if (name == checkpoint_name(step)) found[step] = file.path();
  }
  return found;
}

/// Of the header, without a checksum in its metadata, and of all numbers.
inline std::string checksum_of(std::span<const Tensor> tensors, Metadata metadata) {
  metadata.erase("checksum");
  const std::string head = sympow::io::safetensors_header(tensors, metadata);
  std::uint64_t sum = checksum(std::as_bytes(std::span(head)));
  for (const Tensor& tensor : tensors) sum = checksum(std::as_bytes(tensor.numbers), sum);
  return std::to_string(sum);
}

/// The checkpoint in a file, all of which is read and compared with its checksum. Throws `InvalidSafetensors`.
inline Checkpoint whole_checkpoint(const std::string& path, sympow::Index step) {
  const sympow::io::Safetensors file = sympow::io::read_safetensors(path);
  const auto says = [&](const char* key, const std::string& value) {
    const auto found = file.metadata.find(key);
    if (found == file.metadata.end() || found->second != value)
      sympow::detail::raise<sympow::io::InvalidSafetensors>(path, ": its ", key, " is not ", value);
  };
  says("checksum", checksum_of(file.tensors, file.metadata));
  says("step", std::to_string(step));
  return {path, step, file.metadata};
}

/// The newest checkpoint that is whole, if there is one. One that is not is named on the standard error.
inline std::optional<Checkpoint> newest(const std::string& folder) {
  const auto found = checkpoints_in(folder);
  for (auto checkpoint = found.rbegin(); checkpoint != found.rend(); ++checkpoint) try {
      return whole_checkpoint(checkpoint->second.string(), checkpoint->first);
    } catch (const sympow::io::InvalidSafetensors& error) {
      std::cerr << "a damaged checkpoint, the one before it is taken: " << error.what() << '\n';
    }
  return std::nullopt;
}

/// The folder of one run, which no other run may write to.
class Checkpoints {
 public:
  /// Makes the folder unless it is there, and removes files that a run was killed in. Throws `sympow::InvalidArgument`.
  Checkpoints(const std::string& folder, std::size_t keep) : folder_(folder), keep_(keep) {
    if (keep == 0) sympow::detail::raise<sympow::InvalidArgument>("checkpoints to keep are 0, must be at least 1");
    std::filesystem::create_directories(folder_);
    for (const auto& file : std::filesystem::directory_iterator(folder_))
      if (file.path().filename().string().find(".safetensors.partial-") != std::string::npos)
        std::filesystem::remove(file);
  }

  /// Writes a checkpoint; when it is on the disk, those before it are removed but the last ones that are to be kept.
  /// Metadata are the caller's, with "step" and "checksum" added. Throws as `write_safetensors`.
  void save(sympow::Index step, std::span<const Tensor> tensors, Metadata metadata) const {
    metadata["step"] = std::to_string(step);
    metadata["checksum"] = checksum_of(tensors, metadata);
    sympow::io::write_safetensors((folder_ / checkpoint_name(step)).string(), tensors, metadata);
    auto found = checkpoints_in(folder_);
    found.erase(found.upper_bound(step), found.end());  // a run that went on from an earlier one leaves later ones
    for (; found.size() > keep_; found.erase(found.begin())) std::filesystem::remove(found.begin()->second);
  }

 private:
  std::filesystem::path folder_;
  std::size_t keep_;
};

}  // namespace language_model
