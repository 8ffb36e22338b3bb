// Arrays of a caller on the device: where they begin, and how far it is from one sequence, token or head to the next.
#pragma once

#include <cstdint>

// What cuda_runtime.h calls cudaStream_t.
struct CUstream_st;

namespace sympow::cuda {

using Stream = CUstream_st*;

/// Keys and values in f32 of size 0x1.ffp127 and more count as infinite, those below 2^-110 are multiples of 2^-133.
enum class Element { bf16, fp16, f32 };

/// An array [B, T, H, D]. Entry (b, t, h, c) lies at b sequence + t token + h head + c, strides in entries; of packed
/// sequences `sequence` is not used, t counts all tokens. Gates, β and conditions are f32 with D = 1. Pointers and
/// strides of queries, keys, values and rows are multiples of 16 bytes, so that 16 bytes can be moved at once. No data:
/// the array is not there.
struct ConstView {
  const void* data = nullptr;
  Element element = Element::bf16;
  std::int64_t sequence = 0, token = 0, head = 0;

  friend bool operator==(const ConstView&, const ConstView&) = default;
};

/// The same, to be written.
struct View {
  void* data = nullptr;
  Element element = Element::bf16;
  std::int64_t sequence = 0, token = 0, head = 0;

  operator ConstView() const noexcept { return {data, element, sequence, token, head}; }
};

/// Strides of an array [B, T, H, D] without gaps; T is the longest sequence, or 0 of packed ones.
inline View dense(void* data, Element element, std::int64_t T, std::int64_t H, std::int64_t D) noexcept {
  return {data, element, T * H * D, H * D, D};
}
inline ConstView dense(const void* data, Element element, std::int64_t T, std::int64_t H, std::int64_t D) noexcept {
  return {data, element, T * H * D, H * D, D};
}

}  // namespace sympow::cuda
