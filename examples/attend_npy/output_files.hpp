// Files that appear under their names all together, when everything has succeeded, or not at all.
#pragma once

#include <unistd.h>

#include <array>
#include <atomic>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <sympow/io/output_file.hpp>

#include "bad_input.hpp"

namespace attend_npy {

namespace detail {
inline constexpr std::size_t most_files = 12;
inline std::array<std::atomic<const char*>, most_files> partial_names{};
}  // namespace detail

/// Removes the files in the making, for what ends the program without unwinding it. A signal handler may call it.
inline void remove_partial_files() noexcept {
  for (const auto& name : detail::partial_names)
    if (const char* path = name.load(); path != nullptr) unlink(path);
}

/// Up to `most_files` files in the making, regular ones. Whatever was not committed is gone with this object.
class OutputFiles {
 public:
  OutputFiles() = default;
  OutputFiles(const OutputFiles&) = delete;
  OutputFiles& operator=(const OutputFiles&) = delete;
  ~OutputFiles() {
    if (!committed_)
      for (const auto& file : files_) file->discard();
    for (auto& name : detail::partial_names) name = nullptr;
  }

  /// Opens a new file that will become `path`. Throws `BadInput` or `CannotWrite` if it cannot be written there.
  std::ostream& open(const std::string& option, const std::string& path) {
    auto file = std::make_unique<sympow::io::OutputFile>(option, path);
    if (file->is_device()) fail(file->name(), ": cannot be written, it is not a regular file");
    for (const auto& other : files_) file->require_other_than(*other);
    files_.push_back(std::move(file));
    detail::partial_names.at(files_.size() - 1) = files_.back()->partial().c_str();
    return files_.back()->open();
  }

  /// Where the file of an option is in the making.
  [[nodiscard]] std::string partial(const std::string& option) const {
    for (const auto& file : files_)
      if (file->name().starts_with(option + " ")) return file->partial().string();
    return "";
  }

  /// Writes every file to its end. Throws `CannotWrite`.
  void finish() {
    for (const auto& file : files_) file->finish();
  }

  /// Gives every finished file its name. Throws `CannotWrite`; then none of them is left.
  void commit() {
    for (const auto& file : files_) file->commit();
    committed_ = true;
  }

 private:
  std::vector<std::unique_ptr<sympow::io::OutputFile>> files_;
  bool committed_ = false;
};

}  // namespace attend_npy
