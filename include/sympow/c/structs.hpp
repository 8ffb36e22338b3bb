// Pointers of a caller: structs that begin with their size, and handles that begin with their kind.
#pragma once

#include <cstdint>
#include <cstring>

#include <sympow/core/checks.hpp>

namespace SYMPOW_NAMESPACE::c {

/// Throws `InvalidArgument` for null, and what is not aligned as a T is.
template <class T>
void check_pointer(const T* given, const char* name) {
  if (given == nullptr) detail::raise<InvalidArgument>(name, " is null");
  if (reinterpret_cast<std::uintptr_t>(given) % alignof(T) != 0)
    detail::raise<InvalidArgument>(name, " is not aligned to ", alignof(T), " bytes");
}

/// A struct of the caller: fields that it does not have are those of `defaults`. `first` is its size in the first
/// version that had it. Throws `InvalidArgument` for a smaller one, and for a larger one with bytes beyond that mean
/// something.
template <class T>
T read_struct(const T* given, const char* name, T defaults, std::size_t first = sizeof(T)) {
  constexpr std::size_t most = 1024;  // a size beyond was never set
  check_pointer(given, name);
  const std::size_t size = given->size;
  if (size < first || size > most)
    detail::raise<InvalidArgument>(name, "->size is ", size, ", must lie in ", first, " … ", most,
                                   "; the INIT of the struct sets it");
  const auto* const bytes = reinterpret_cast<const unsigned char*>(given);
  for (std::size_t n = sizeof(T); n < size; ++n)
    if (bytes[n] != 0)
      detail::raise<InvalidArgument>(name, "->size is ", size, ", and byte ", n,
                                     " is not 0: a field of a later version, which this library does not know");
  std::memcpy(&defaults, given, size < sizeof(T) ? size : sizeof(T));
  defaults.size = sizeof(T);
  return defaults;
}

/// What a handle begins with. Kinds are words that memory holds by no accident.
enum class Kind : std::uint64_t {
  attention = 0x31747461'6d797301,
  workspace = 0x316b7277'6d797302,
  states = 0x31617473'6d797303,
  state_gradients = 0x31617267'6d797304,
};

/// The base of the handle of a kind.
template <Kind k>
struct Handle {
  static constexpr Kind right = k;
  Kind kind = k;
};

/// What a kind of handle is called.
inline const char* name_of(Kind kind) {
  switch (kind) {
    case Kind::attention:
      return "a sympow_attention";
    case Kind::workspace:
      return "a sympow_workspace";
    case Kind::states:
      return "sympow_states";
    case Kind::state_gradients:
      return "sympow_state_gradients";
  }
  return "no handle of this library";
}

/// What a handle says that it is.
template <class H>
Kind kind_of(const H* handle) noexcept {
  Kind kind{};
  std::memcpy(&kind, static_cast<const void*>(handle), sizeof kind);
  return kind;
}

/// Throws `InvalidArgument` for null, and for the handle of another kind.
template <class H>
void check_handle(const H* handle, const char* name) {
  check_pointer(handle, name);
  if (kind_of(handle) != H::right)
    detail::raise<InvalidArgument>(name, " is ", name_of(kind_of(handle)), ", must be ", name_of(H::right));
}

}  // namespace SYMPOW_NAMESPACE::c
