// A folder that one program at a time writes to.
#pragma once

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <string>
#include <system_error>

#include <sympow/io/output_file.hpp>

namespace SYMPOW_NAMESPACE::io {

/// A folder in use. The message names it.
struct [[gnu::visibility("default")]] FolderInUse : InvalidArgument {
  using InvalidArgument::InvalidArgument;
};

/// Locks a folder against other programs that ask for its lock, by a file "lock" in it. The lock ends with this object
/// or with the program; the file stays. A file system without locks protects nothing.
class FolderLock {
 public:
  /// Throws `FolderInUse` if another one holds the folder, `CannotWrite` if its file cannot be made.
  explicit FolderLock(const std::filesystem::path& folder) {
    const std::string path = (folder / "lock").string();
    file_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (file_ < 0) sympow::detail::raise<CannotWrite>(path, ": ", std::generic_category().message(errno));
    if (::flock(file_, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) return;
    ::close(file_);
    sympow::detail::raise<FolderInUse>(folder.string(),
                                       ": another program writes to this folder; wait for its end or take another one");
  }
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;
  ~FolderLock() { ::close(file_); }

 private:
  int file_ = -1;
};

}  // namespace SYMPOW_NAMESPACE::io
