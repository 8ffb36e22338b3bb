// Writing files durably.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <system_error>

#include <sympow/io/output_file.hpp>

namespace SYMPOW_NAMESPACE::io {
namespace detail {

/// Waits until a file or folder is on disk. Throws `CannotWrite`.
inline void synchronize(const std::filesystem::path& path) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  const int error = file < 0 || ::fsync(file) != 0 ? errno : 0;
  if (file >= 0) ::close(file);
  if (error != 0 && error != EINVAL)  // EINVAL: the file system does not support fsync
    sympow::detail::raise<CannotWrite>(path.string(), ": ", std::generic_category().message(error));
}

}  // namespace detail

/// Finishes and commits a file, and waits until it is on disk under its name. After a crash either the whole new file
/// or the previous one exists. Throws `CannotWrite`.
inline void commit_to_disk(OutputFile& file) {
  file.finish();
  if (file.is_device()) return file.commit();
  detail::synchronize(file.partial());
  file.commit();
  detail::synchronize(absolute(file.partial()).parent_path());
}

}  // namespace SYMPOW_NAMESPACE::io
