// What a call says: that its work is on the stream, or in a sentence why it is not.
#pragma once

#include <cstddef>
#include <cstring>

namespace sympow::cuda {

enum class Code {
  ok,
  bad_argument,         ///< the text names the argument, what it is and what it must be
  not_compiled,         ///< outside of the table of instantiations; the text says what there is
  too_large,            ///< sizes, each within its bounds, whose product no integer or grid holds
  workspace_too_small,  ///< the text says how many bytes it must have
  device_too_small,     ///< it has less shared memory than a kernel needs; the text says how much
  cuda_error            ///< of the runtime, which the text quotes
};

/// The outcome of a call. All functions of this library check their arguments before they launch anything: unless the
/// code is `cuda_error`, a call that was refused has touched no memory. Cost: 256 bytes, no allocation; nothing throws.
class [[nodiscard]] Status {
 public:
  Status() noexcept = default;
  Status(Code code, const char* text) noexcept : code_(code) {
    const std::size_t length = std::strlen(text);
    std::memcpy(text_, text, length < sizeof text_ ? length : sizeof text_ - 1);
  }

  bool ok() const noexcept { return code_ == Code::ok; }
  Code code() const noexcept { return code_; }
  /// One sentence; empty where all is well.
  const char* text() const noexcept { return text_; }

 private:
  Code code_ = Code::ok;
  char text_[252] = {};
};

}  // namespace sympow::cuda
