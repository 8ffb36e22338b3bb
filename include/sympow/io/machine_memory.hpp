// How much a file can hold that is to be read into memory.
#pragma once

#include <unistd.h>

#include <cstdint>
#include <limits>

#include <sympow/core/config.hpp>

namespace SYMPOW_NAMESPACE::io {

/// Bytes of this machine's memory; the largest number where the system does not say. What is larger cannot be read: a
/// file with holes may be, and takes no room on its disk.
inline std::uint64_t machine_memory() {
  const long pages = ::sysconf(_SC_PHYS_PAGES), page = ::sysconf(_SC_PAGESIZE);
  if (pages <= 0 || page <= 0) return std::numeric_limits<std::uint64_t>::max();
  return static_cast<std::uint64_t>(pages) * static_cast<std::uint64_t>(page);
}

}  // namespace SYMPOW_NAMESPACE::io
