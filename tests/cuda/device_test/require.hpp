// A count of what does not hold.
#pragma once

#include <cstdarg>
#include <cstdio>
#include <cstring>

#include <sympow/cuda/decode.hpp>

namespace sympow::test {

inline int failures = 0;
inline const char* only = "";  ///< cases whose name does not contain it are left out

/// Counts what does not hold, and says what that is.
#if defined(__GNUC__)
[[gnu::format(printf, 2, 3)]]
#endif
inline bool require(bool holds, const char* format, ...) {
  if (holds) return true;
  ++failures;
  std::va_list values;
  va_start(values, format);
  std::printf("  FAILED: ");
  std::vprintf(format, values);
  std::printf("\n");
  va_end(values);
  return false;
}

}  // namespace sympow::test
