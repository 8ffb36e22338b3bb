// Shapes of arrays in files.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include <sympow/core/config.hpp>

namespace SYMPOW_NAMESPACE::io {

/// Size of every axis; the last axis is fastest.
using Shape = std::vector<std::ptrdiff_t>;

/// The shape as a Python tuple: "()", "(3,)", "(3, 4)".
inline std::string text(const Shape& shape) {
  std::string result = "(";
  for (std::size_t n = 0; n < shape.size(); ++n) result += (n > 0 ? ", " : "") + std::to_string(shape[n]);
  return result + (shape.size() == 1 ? ",)" : ")");
}

/// The index of entry n in C order: "(0, 3, 1)".
inline std::string position(const Shape& shape, std::size_t n) {
  Shape index(shape.size());
  for (std::size_t axis = shape.size(); axis-- > 0;) {
    const auto size = static_cast<std::size_t>(shape[axis]);
    index[axis] = static_cast<std::ptrdiff_t>(n % size);
    n /= size;
  }
  return text(index);
}

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
