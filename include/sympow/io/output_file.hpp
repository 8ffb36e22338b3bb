// Files that are written completely or not at all, and a check of standard output.
#pragma once

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <ostream>
#include <random>
#include <string>
#include <system_error>

#include <sympow/core/checks.hpp>

namespace SYMPOW_NAMESPACE::io {

/// A file or stream that cannot be written; the message names it.
struct [[gnu::visibility("default")]] CannotWrite : InvalidArgument {
  using InvalidArgument::InvalidArgument;
};

/// An output file. It is written under a temporary name beside its target, which `commit` renames; the destructor
/// removes an uncommitted file. Follows links; a replaced file keeps its mode. Devices, pipes and open files such as
/// /dev/stdout are written directly.
///
///     OutputFile file("--out", "y.txt");
///     file.open() << text;
///     file.finish();
///     file.commit();
class OutputFile {
 public:
  /// Creates no file yet. Messages mention `option`. Throws `CannotWrite`.
  OutputFile(const std::string& option, const std::string& path) : name_(option + " " + path), target_(path) {
    std::error_code error;
    const std::filesystem::file_status found = std::filesystem::status(target_, error);
    if (std::filesystem::is_directory(found)) refuse("cannot be written, it is a directory");
    is_device_ = std::filesystem::exists(found) && !std::filesystem::is_regular_file(found);
    if (is_device_) return;
    follow_links();
    if (is_device_) return;
    if (!target_.has_filename()) refuse("cannot be written, it names no file");
    partial_ = target_;
    partial_ += ".partial-" + std::to_string(std::random_device{}());
  }
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;
  ~OutputFile() {
    if (!is_committed_) discard();
  }

  /// Option and path.
  [[nodiscard]] const std::string& name() const { return name_; }
  /// The temporary name until `commit`; empty for a device.
  [[nodiscard]] const std::filesystem::path& partial() const { return partial_; }
  /// Whether it is written directly.
  [[nodiscard]] bool is_device() const { return is_device_; }

  /// Throws `CannotWrite` if both have the same target.
  void require_other_than(const OutputFile& other) const {
    if (resolved_target() == other.resolved_target()) refuse("is the same file as " + other.name_);
  }

  /// The stream; creates the file on the first call. Throws `CannotWrite`.
  std::ostream& open() {
    if (out_.is_open()) return out_;
    std::error_code error;
    if (std::filesystem::exists(partial_, error)) refuse("cannot be written, " + partial_.string() + " is there");
    errno = 0;
    out_.open(is_device_ ? target_ : partial_, std::ios::binary | (is_device_ ? std::ios::app : std::ios::trunc));
    if (!out_) refuse("cannot be written, " + std::generic_category().message(errno));
    is_made_ = !is_device_;
    const std::filesystem::file_status replaced = std::filesystem::status(target_, error);
    if (is_device_ || !std::filesystem::exists(replaced)) return out_;
    std::filesystem::permissions(partial_, replaced.permissions(), error);
    if (error) refuse("cannot have the mode of the file it replaces, " + error.message());
    return out_;
  }

  /// Flushes and closes the stream. Throws `CannotWrite`.
  void finish() {
    out_.close();
    if (!out_) refuse("cannot be written to its end");
  }

  /// Renames the finished file to its target. Throws `CannotWrite`.
  void commit() {
    std::error_code error;
    if (is_made_) std::filesystem::rename(partial_, target_, error);
    if (error) refuse("cannot be written, " + error.message());
    is_committed_ = true;
  }

  /// Removes the file, committed or not; it can be opened again.
  void discard() {
    std::error_code ignored;
    if (out_.is_open()) out_.close();
    out_.clear();
    if (is_made_) std::filesystem::remove(is_committed_ ? target_ : partial_, ignored);
    is_made_ = is_committed_ = false;
  }

 private:
  /// Replaces the target by the end of its chain of links, existing or not.
  void follow_links() {
    constexpr int max_links = 40;
    std::error_code error;
    for (int links = 0; std::filesystem::is_symlink(target_, error); ++links) {
      if (links == max_links) refuse("cannot be written, its links do not end");
      // An open file such as /dev/stdout must not be replaced, whatever its name was.
      is_device_ = std::filesystem::weakly_canonical(target_.parent_path(), error).string().starts_with("/proc/");
      if (is_device_) return;
      const std::filesystem::path to = std::filesystem::read_symlink(target_, error);
      if (error) refuse("cannot be written, " + error.message());
      target_ = target_.parent_path() / to;
    }
  }

  [[nodiscard]] std::filesystem::path resolved_target() const {
    std::error_code ignored;
    return std::filesystem::weakly_canonical(std::filesystem::absolute(target_, ignored), ignored);
  }

  [[noreturn]] void refuse(const std::string& reason) const { sympow::detail::raise<CannotWrite>(name_, ": ", reason); }

  std::string name_;
  std::filesystem::path target_, partial_;
  std::ofstream out_;
  bool is_device_ = false, is_made_ = false, is_committed_ = false;
};

/// Throws `CannotWrite` unless everything printed was written.
inline void require_printed(std::FILE* out = stdout) {
  if (std::fflush(out) != 0 || std::ferror(out) != 0)
    sympow::detail::raise<CannotWrite>("standard output: cannot be written to its end");
}

}  // namespace SYMPOW_NAMESPACE::io
