// Files that appear under their names all together, when everything has succeeded, or not at all.
#pragma once

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <random>
#include <string>
#include <system_error>
#include <vector>

#include "bad_input.hpp"

namespace attend_npy {

/// Files in the making. Each is written beside its target under another name; `commit` renames them. Whatever was not committed is gone
/// with this object.
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
  }

  /// Opens a new file that will become `path`. Throws `BadInput` if it cannot be written there.
  std::ostream& open(const std::string& option, const std::string& path) {
    namespace fs = std::filesystem;
    const std::string name = option + " " + path;
    std::error_code error;
    fs::path target = path;
    if (fs::is_symlink(target, error))
      target = fs::weakly_canonical(target, error);  // the file that is meant, not the link
    if (fs::exists(target, error) && !fs::is_regular_file(target, error))
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
    file->out.open(file->partial, std::ios::binary);
    if (!file->out) fail(name, ": cannot be written, ", std::generic_category().message(errno));
    files_.push_back(std::move(file));
    return files_.back()->out;
  }

  /// Gives every file its name. Throws `BadInput`; then none of them is left.
  void commit() {
    for (const auto& file : files_) {
      file->out.close();
      if (!file->out) fail(file->name, ": cannot be written to its end");
    }
    for (const auto& file : files_) {
      std::error_code error;
      std::filesystem::rename(file->partial, file->target, error);
      if (error) fail(file->name, ": cannot be written, ", error.message());
      file->renamed = true;
    }
    committed_ = true;
  }

 private:
  std::vector<std::unique_ptr<File>> files_;
  bool committed_ = false;
};

}  // namespace attend_npy
