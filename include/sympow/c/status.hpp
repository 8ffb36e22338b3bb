// What a call of the C interface says: a status, and a sentence of this thread. Nothing is thrown beyond it.
#pragma once

#include <algorithm>
#include <new>
#include <stdexcept>
#include <string_view>

#include <sympow.h>
#include <sympow/core/checks.hpp>
#include <sympow/core/parallel.hpp>
#include <sympow/io/output_file.hpp>

namespace SYMPOW_NAMESPACE::c {

/// A device, type or power that this library was built without.
struct NotBuilt : InvalidArgument {
  using InvalidArgument::InvalidArgument;
};

/// An error of the runtime of a device.
struct DeviceError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// The text of `sympow_error`, ended by 0.
inline constexpr std::size_t text_bytes = 1024;
inline thread_local char error_text[text_bytes] = {};

/// Sets the text. A longer one loses its middle, between whole characters: it begins with what it is about, and ends
/// with the reason.
inline sympow_status say(sympow_status status, std::string_view text) noexcept {
  constexpr std::string_view gap = " ... ";
  constexpr std::size_t half = (text_bytes - 1 - gap.size()) / 2;
  const bool fits = text.size() < text_bytes;
  std::size_t cut = fits ? text.size() : half, rest = fits ? text.size() : text.size() - half;
  const auto continues = [&](std::size_t n) { return n < text.size() && (text[n] & 0xC0) == 0x80; };
  while (cut > 0 && continues(cut)) --cut;
  while (continues(rest)) ++rest;
  char* end = error_text;
  for (const auto part : {text.substr(0, cut), fits ? std::string_view() : gap, text.substr(rest)})
    end = std::copy(part.begin(), part.end(), end);
  *end = 0;
  return status;
}

/// The status of the exception that is being handled.
inline sympow_status say_exception() noexcept {
  try {
    throw;
  } catch (const NotBuilt& error) {
    return say(SYMPOW_NOT_BUILT, error.what());
  } catch (const ShapeMismatch& error) {
    return say(SYMPOW_SHAPE_MISMATCH, error.what());
  } catch (const NotFinite& error) {
    return say(SYMPOW_NOT_FINITE, error.what());
  } catch (const InterruptedState& error) {
    return say(SYMPOW_INTERRUPTED_STATE, error.what());
  } catch (const InvalidStateFile& error) {
    return say(SYMPOW_BAD_FILE, error.what());
  } catch (const io::CannotWrite& error) {
    return say(SYMPOW_BAD_FILE, error.what());
  } catch (const InvalidArgument& error) {
    return say(SYMPOW_INVALID_ARGUMENT, error.what());
  } catch (const DimensionOverflow& error) {
    return say(SYMPOW_TOO_LARGE, error.what());
  } catch (const std::length_error&) {
    return say(SYMPOW_TOO_LARGE, "a container would have more entries than it can hold");
  } catch (const std::bad_alloc&) {
    return say(SYMPOW_OUT_OF_MEMORY, "memory ended");
  } catch (const DeviceError& error) {
    return say(SYMPOW_DEVICE_ERROR, error.what());
  } catch (const std::exception& error) {
    return say(SYMPOW_INTERNAL_ERROR, error.what());
  } catch (...) {
    return say(SYMPOW_INTERNAL_ERROR, "an exception of no known type");
  }
}

/// The outcome of f, which rounds to the nearest.
template <class F>
sympow_status guarded(const F& f) noexcept {
  const detail::RoundsToNearest rounding;
  try {
    f();
    return say(SYMPOW_OK, "");
  } catch (...) {
    return say_exception();
  }
}

}  // namespace SYMPOW_NAMESPACE::c
