// Status with a text, as printf writes it.
#pragma once

#include <cstdarg>
#include <cstdio>

#include <sympow/cuda/status.hpp>

namespace sympow::cuda::library {

#if defined(__GNUC__)
[[gnu::format(printf, 2, 3)]]
#endif
inline Status refuse(Code code, const char* format, ...) noexcept {
  char text[252];
  std::va_list values;
  va_start(values, format);
  std::vsnprintf(text, sizeof text, format, values);
  va_end(values);
  return {code, text};
}

}  // namespace sympow::cuda::library

/// Leaves the function with a status that is not ok.
#define SYMPOW_CUDA_TRY(expression) \
  if (::sympow::cuda::Status status_ = (expression); !status_.ok()) return status_
