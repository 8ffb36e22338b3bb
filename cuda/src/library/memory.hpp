// Pieces of one memory, one after the other; sizes that are too large stay so.
#pragma once

#include <cstddef>
#include <cstdint>

#include <sympow/cuda/state.hpp>

#include "refuse.hpp"

namespace sympow::cuda::library {

/// What no memory holds. Sums and products of sizes end here instead of wrapping around.
inline constexpr std::uint64_t beyond = std::uint64_t{1} << 62;

constexpr std::uint64_t times(std::uint64_t a, std::uint64_t b) {
  return a == 0 || b == 0 ? 0 : a >= beyond / b ? beyond : a * b;
}
template <class... Factors>
constexpr std::uint64_t product(Factors... factors) {
  std::uint64_t p = 1;
  ((p = times(p, static_cast<std::uint64_t>(factors))), ...);
  return p;
}

/// Bytes of an element.
constexpr std::size_t bytes_of(Element element) noexcept { return element == Element::f32 ? 4 : 2; }

/// Takes arrays from a memory, each aligned to 256 bytes. Without a memory it counts.
class Pieces {
 public:
  static constexpr std::uint64_t alignment = 256;
  explicit Pieces(void* memory = nullptr) noexcept : begin_(static_cast<std::byte*>(memory)) {}

  template <class T>
  void take(T*& array, std::uint64_t count) noexcept {
    array = begin_ ? reinterpret_cast<T*>(begin_ + used_) : nullptr;
    const std::uint64_t size = times(count, sizeof(T));
    used_ = used_ + size >= beyond ? beyond : (used_ + size + alignment - 1) / alignment * alignment;
  }
  std::uint64_t bytes() const noexcept { return used_; }

 private:
  std::byte* begin_;
  std::uint64_t used_ = 0;
};

/// The bytes that `pieces` counted.
inline Status counted(const Pieces& pieces, const char* what, std::size_t& bytes) noexcept {
  if (pieces.bytes() >= beyond) return refuse(Code::too_large, "the %s has more than 2^62 bytes", what);
  bytes = pieces.bytes();
  return {};
}

/// Whether a memory is what `pieces` counted.
inline Status check_memory(const void* memory, std::size_t bytes, std::size_t needed, const char* what) noexcept {
  if (bytes < needed)
    return refuse(Code::workspace_too_small, "the %s has %zu bytes and must have %zu", what, bytes, needed);
  if (!memory && needed > 0) return refuse(Code::bad_argument, "the %s is a null pointer", what);
  if (reinterpret_cast<std::uintptr_t>(memory) % Pieces::alignment != 0)
    return refuse(Code::bad_argument, "the %s begins at %p, which must be a multiple of %d", what, memory,
                  static_cast<int>(Pieces::alignment));
  return {};
}

}  // namespace sympow::cuda::library
