// Tensors whose bits count.
#pragma once

#include <bit>
#include <cstring>
#include <limits>
#include <span>
#include <vector>

#include <sympow/io/safetensors.hpp>

namespace sympow::test {

/// Three tensors, of which the bits count: one of 3 numbers, one with none, one with no axis.
struct Numbers {
  std::vector<float> a, b, c;
  explicit Numbers(float fill = 0) : a(3, fill), c(1, fill) {}
  [[nodiscard]] std::vector<io::Tensor> tensors() {
    return {{"a.weight", {1, 3}, a}, {"b", {0, 7}, b}, {"ü\n\"c\\", {}, c}};
  }
};
inline Numbers odd_numbers() {
  Numbers x;
  x.a = {-0.0f, std::numeric_limits<float>::denorm_min(), std::bit_cast<float>(0x7fc12345u)};
  x.c = {1e30f};
  return x;
}
inline bool same_bits(std::span<const float> x, std::span<const float> y) {
  return x.size() == y.size() && std::memcmp(x.data(), y.data(), x.size() * sizeof(float)) == 0;
}

}  // namespace sympow::test
