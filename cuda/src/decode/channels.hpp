// Rows of channels as floats of the size of 1.
#pragma once

#include <cstddef>

#include "../block/block.hpp"

namespace sympow::cuda {

/// Bytes of an array in shared memory, with what is left free before the next one.
constexpr int padded(int bytes) { return (bytes + 127) / 128 * 128; }

template <class T, std::size_t N>
SYMPOW_DEVICE void unpack(block::Lanes<float> (&x)[2 * N], const block::Lanes<block::Pair<T>> (&pairs)[N]) {
  SYMPOW_UNROLL
  for (std::size_t n = 0; n < N; ++n) {
    x[2 * n] = lower(pairs[n]);
    x[2 * n + 1] = upper(pairs[n]);
  }
}

/// The x with 2^x ≤ a < 2^{x+1}, within ±126; of 0 -126, of infinity and NaN 126.
SYMPOW_DEVICE block::Lanes<int> exponent(block::Lanes<float> a) {
  const block::Lanes<int> x = (block::bit_cast<int>(a) >> 23) - 127;
  return block::where(x < -126, -126, block::where(x > 126, 126, x));
}
/// 2^x, -126 ≤ x ≤ 127.
SYMPOW_DEVICE block::Lanes<float> power_of_two(block::Lanes<int> x) { return block::bit_cast<float>((x + 127) << 23); }

/// Sum or maximum over `lanes` neighbouring lanes, a power of two; all of them get it.
template <class T>
SYMPOW_DEVICE block::Lanes<T> sum_over(block::Lanes<T> x, int lanes) {
  for (int distance = lanes / 2; distance > 0; distance /= 2) x += block::shuffle_xor(x, distance);
  return x;
}
template <class T>
SYMPOW_DEVICE block::Lanes<T> largest_over(block::Lanes<T> x, int lanes) {
  for (int distance = lanes / 2; distance > 0; distance /= 2) {
    const block::Lanes<T> other = block::shuffle_xor(x, distance);
    x = block::where(x < other, other, x);
  }
  return x;
}

/// Divides a row, N channels in each of `lanes` neighbouring lanes, by 2^x, x the exponent of its largest channel.
template <std::size_t N>
SYMPOW_DEVICE block::Lanes<int> normalise(block::Lanes<float> (&row)[N], int lanes) {
  block::Lanes<float> largest = 0.f;
  SYMPOW_UNROLL
  for (std::size_t n = 0; n < N; ++n) {
    const block::Lanes<float> size = block::absolute(row[n]);
    largest = block::where(largest < size, size, largest);
  }
  const block::Lanes<int> x = exponent(largest_over(largest, lanes));
  SYMPOW_UNROLL
  for (std::size_t n = 0; n < N; ++n) row[n] = row[n] * power_of_two(0 - x);
  return x;
}

}  // namespace sympow::cuda
