// Checkpoints of a run: a folder of safetensors files, each complete or detectably damaged.
#pragma once

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <filesystem>
#include <map>
#include <optional>
#include <ostream>
#include <span>
#include <string>

#include <sympow/core/checked_file.hpp>
#include <sympow/io/folder_lock.hpp>
#include <sympow/io/safetensors.hpp>

namespace SYMPOW_NAMESPACE::io {

/// An intact checkpoint, for `read_safetensors`.
struct Checkpoint {
  std::string path;   ///< of the file
  Index step = 0;     ///< step of the run
  Metadata metadata;  ///< includes "step" and "checksum"
};

namespace detail {

/// "step-00001200.safetensors"
inline std::string checkpoint_name(Index step) {
  const std::string digits = std::to_string(step);
  return "step-" + std::string(8 - std::min<std::size_t>(digits.size(), 8), '0') + digits + ".safetensors";
}

/// Paths of the checkpoints of a folder, intact or not, by step; empty if there is no folder.
inline std::map<Index, std::filesystem::path> list_checkpoints(const std::filesystem::path& folder) {
  std::map<Index, std::filesystem::path> found;
  if (!std::filesystem::exists(folder)) return found;
  for (const auto& file : std::filesystem::directory_iterator(folder)) {
    const std::string name = file.path().filename().string();
    Index step = 0;
    if (name.starts_with("step-")) std::from_chars(name.data() + 5, name.data() + name.size(), step);
    if (name == checkpoint_name(step)) found[step] = file.path();
  }
  return found;
}

/// Checksum of the header, without the metadata's "checksum", and of all tensors.
inline std::string compute_checksum(std::span<const Tensor> tensors, Metadata metadata) {
  metadata.erase("checksum");
  const std::string head = safetensors_header(tensors, metadata);
  std::uint64_t sum = checksum(std::as_bytes(std::span(head)));
  for (const Tensor& tensor : tensors) sum = checksum(std::as_bytes(tensor.numbers), sum);
  return std::to_string(sum);
}

/// Reads a checkpoint and verifies its checksum. Throws `InvalidSafetensors`.
inline Checkpoint read_checkpoint(const std::string& path, Index step) {
  const Safetensors file = read_safetensors(path);
  const auto require_metadata = [&](const char* key, const std::string& value) {
    const auto found = file.metadata.find(key);
    if (found == file.metadata.end() || found->second != value)
      refuse_safetensors(path, "its ", key, " is not ", value);
  };
  require_metadata("checksum", compute_checksum(file.tensors, file.metadata));
  require_metadata("step", std::to_string(step));
  return {path, step, file.metadata};
}

}  // namespace detail

/// The newest intact checkpoint of a folder that load(checkpoint) accepts, if any; `load` rejects one by
/// `InvalidArgument`. Reports damaged and rejected ones to `complaints`.
template <class Load>
std::optional<Checkpoint> newest_checkpoint(const std::string& folder, std::ostream& complaints, const Load& load) {
  const auto found = detail::list_checkpoints(folder);
  for (auto file = found.rbegin(); file != found.rend(); ++file) try {
      const Checkpoint checkpoint = detail::read_checkpoint(file->second.string(), file->first);
      load(checkpoint);
      return checkpoint;
    } catch (const InvalidArgument& error) {
      complaints << "checkpoint of step " << file->first << " is not taken: " << error.what() << '\n';
    }
  return std::nullopt;
}
/// The newest intact checkpoint.
inline std::optional<Checkpoint> newest_checkpoint(const std::string& folder, std::ostream& complaints) {
  return newest_checkpoint(folder, complaints, [](const Checkpoint&) {});
}

/// The folder of one run; no other run can write to it while this object lives. If the run is killed or the machine
/// stops, the last saved checkpoint remains.
///
///     const Checkpoints checkpoints("run");
///     checkpoints.save(step, tensors, {{"rate", ".001"}}, 2);
///
/// A checkpoint is a safetensors file, step-00001200.safetensors, with "step" and "checksum" in its metadata.
class Checkpoints {
 public:
  /// Creates the folder if needed, and removes partial files of a killed run. Throws `FolderInUse`, `CannotWrite`.
  explicit Checkpoints(const std::string& folder) : folder_(made(folder)), lock_(folder_) {
    for (const auto& file : std::filesystem::directory_iterator(folder_))
      if (file.path().filename().string().find(".safetensors.partial-") != std::string::npos)
        std::filesystem::remove(file);
  }

  /// Writes a checkpoint to disk, then removes all but the newest `keep`. Throws `InvalidArgument` if keep is 0, and as
  /// `write_safetensors`.
  void save(Index step, std::span<const Tensor> tensors, Metadata metadata, std::size_t keep) const {
    if (keep == 0)
      sympow::detail::raise<InvalidArgument>(folder_.string(), ": keep is 0 checkpoints, must be at least 1");
    metadata["step"] = std::to_string(step);
    metadata["checksum"] = detail::compute_checksum(tensors, metadata);
    write_safetensors((folder_ / detail::checkpoint_name(step)).string(), tensors, metadata);
    auto found = detail::list_checkpoints(folder_);
    found.erase(found.upper_bound(step), found.end());  // a run resumed from an earlier step keeps later files
    for (; found.size() > keep; found.erase(found.begin())) std::filesystem::remove(found.begin()->second);
  }

 private:
  static std::filesystem::path made(const std::filesystem::path& folder) {
    std::error_code error;
    std::filesystem::create_directories(folder, error);
    if (error) sympow::detail::raise<CannotWrite>(folder.string(), ": ", error.message());
    return folder;
  }

  std::filesystem::path folder_;
  FolderLock lock_;
};

}  // namespace SYMPOW_NAMESPACE::io
