// A file that a program writes in full or not at all.
#pragma once

#include <cstdio>
#include <filesystem>
#include <stdexcept>
#include <string>

#include <sympow/core/config.hpp>

namespace SYMPOW_NAMESPACE::verify {

/// A file to be written at the end of a run, of which is known at its start whether that is possible.
///
/// Throws std::invalid_argument that names the file. What stood there before stays until the new content is complete.
class OutputFile {
 public:
  /// Nothing is kept of this check.
  explicit OutputFile(std::string path) : path_(std::move(path)) {
    if (path_ == "-") throw std::invalid_argument("cannot write to -, which names no file");
    std::FILE* file = std::fopen(part().c_str(), is_device() ? "wb" : "ab");
    if (file == nullptr || std::filesystem::is_directory(path_)) {
      if (file != nullptr) close_and_remove(file);
      fail();
    }
    close_and_remove(file);
  }

  /// Writes all of it.
  void write(const std::string& content) const {
    std::FILE* file = std::fopen(part().c_str(), "wb");
    if (file == nullptr) fail();
    const bool written = std::fwrite(content.data(), 1, content.size(), file) == content.size();
    const bool closed = std::fclose(file) == 0;
    if (written && closed && (is_device() || std::rename(part().c_str(), path_.c_str()) == 0)) return;
    if (!is_device()) std::remove(part().c_str());
    fail();
  }

  [[nodiscard]] const std::string& path() const { return path_; }  ///< as it was given

 private:
  /// Pipes, terminals and the like are written to directly.
  [[nodiscard]] bool is_device() const {
    std::error_code none;
    const auto status = std::filesystem::status(path_, none);
    return std::filesystem::exists(status) && !std::filesystem::is_regular_file(status) &&
           !std::filesystem::is_directory(status);
  }
  [[nodiscard]] std::string part() const { return is_device() ? path_ : path_ + ".part"; }
  void close_and_remove(std::FILE* file) const {
    std::fclose(file);
    if (!is_device()) std::remove(part().c_str());
  }
  [[noreturn]] void fail() const { throw std::invalid_argument("cannot write " + path_); }

  std::string path_;
};

}  // namespace SYMPOW_NAMESPACE::verify
