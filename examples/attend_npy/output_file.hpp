// Files that appear under their names all together, when everything has succeeded, or not at all.
#pragma once

#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <memory>
#include <random>
#include <string>
#include <system_error>
#include <vector>

#include "bad_input.hpp"

namespace attend_npy {

namespace detail {
inline std::array<std::atomic<const char*>, 3> partial_names{};
}

/// Removes the files in the making, for what ends the program without unwinding it. A signal handler may call it.
inline void remove_partial_files() noexcept {
  for (const auto& name : detail::partial_names)
    if (const char* path = name.load(); path != nullptr) unlink(path);
}

/// Up to three files in the making. Each is written beside its target under another name; `commit` renames them.
/// Whatever was not committed is gone with this object. A link is followed, and a file that is replaced keeps its mode.
class OutputFiles {
  struct File {
    std::string name;  // option and path, for messages
    std::filesystem::path target, partial;
    std::ofstream out;
    bool renamed = false;
  };

 public:
  OutputFiles() = default;
  OutputFiles(const OutputFiles&) = delete;
  OutputFiles& operator=(const OutputFiles&) = delete;
  ~OutputFiles() {
    std::error_code ignored;
    for (const auto& file : files_)
      if (!committed_) {
        file->out.close();
        std::filesystem::remove(file->renamed ? file->target : file->partial, ignored);
      }
    for (auto& name : detail::partial_names) name = nullptr;
  }

  /// Opens a new file that will become `path`. Throws `BadInput` if it cannot be written there.
  std::ostream& open(const std::string& option, const std::string& path) {
    namespace fs = std::filesystem;
    const std::string name = option + " " + path;
    std::error_code error;
    const fs::path target = followed(name, path);
    const fs::file_status replaced = fs::status(target, error);
    if (fs::exists(replaced) && !fs::is_regular_file(replaced))
      fail(name, ": cannot be written, it is not a regular file");
    const fs::path place = fs::weakly_canonical(fs::absolute(target, error), error);
    for (const auto& other : files_)
      if (fs::weakly_canonical(fs::absolute(other->target, error), error) == place)
        fail(name, ": is the same file as ", other->name);
    auto file = std::make_unique<File>();
    file->name = name;
    file->target = target;
    file->partial = target;
    file->partial += ".partial-" + std::to_string(std::random_device{}());
    if (!target.has_filename() || fs::exists(file->partial, error)) fail(name, ": cannot be written");
    files_.push_back(std::move(file));
    File& made = *files_.back();
    detail::partial_names.at(files_.size() - 1) = made.partial.c_str();
    made.out.open(made.partial, std::ios::binary);
    if (!made.out) fail(name, ": cannot be written, ", std::generic_category().message(errno));
    if (fs::exists(replaced)) fs::permissions(made.partial, replaced.permissions(), error);
    if (error) fail(name, ": cannot have the mode of the file it replaces, ", error.message());
    return made.out;
  }

  /// Writes every file to its end. Throws `BadInput`.
  void finish() {
    for (const auto& file : files_) {
      file->out.close();
      if (!file->out) fail(file->name, ": cannot be written to its end");
    }
  }

  /// Gives every finished file its name. Throws `BadInput`; then none of them is left.
  void commit() {
    for (const auto& file : files_) {
      std::error_code error;
      std::filesystem::rename(file->partial, file->target, error);
      if (error) fail(file->name, ": cannot be written, ", error.message());
      file->renamed = true;
    }
    committed_ = true;
  }

 private:
  /// The file that a path means, at the end of its links, whether there is one or not.
  static std::filesystem::path followed(const std::string& name, std::filesystem::path path) {
    constexpr int most_links = 40;
    std::error_code error;
    for (int links = 0; std::filesystem::is_symlink(path, error); ++links) {
      if (links == most_links) fail(name, ": cannot be written, its links do not end");
      const std::filesystem::path to = std::filesystem::read_symlink(path, error);
      if (error) fail(name, ": cannot be written, ", error.message());
      path = path.parent_path() / to;
    }
    return path;
  }

  std::vector<std::unique_ptr<File>> files_;
  bool committed_ = false;
};

}  // namespace attend_npy
