// Shapes of arrays in files.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include <sympow/core/config.hpp>

namespace SYMPOW_NAMESPACE::io {

/// Size of every axis; the last axis is fastest.
using Shape = std::vector<std::ptrdiff_t>;

/// Number of entries, or nothing if the bytes overflow, which is checked even if another axis is 0.
inline std::optional<std::size_t> entries_of(const Shape& shape, std::size_t bytes_each) {
  std::ptrdiff_t product = static_cast<std::ptrdiff_t>(bytes_each);
  bool empty = false;
  for (const std::ptrdiff_t size : shape)
    if (size == 0)
      empty = true;
    else if (__builtin_mul_overflow(product, size, &product))
      return std::nullopt;
  return empty ? 0 : static_cast<std::size_t>(product) / bytes_each;
}

}  // namespace SYMPOW_NAMESPACE::io
