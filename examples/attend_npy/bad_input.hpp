// What ends the program with exit status 2.
#pragma once

#include <sstream>
#include <stdexcept>
#include <string>

namespace attend_npy {

/// By which the program was called; `main` sets it.
inline const char* program_name = "attend_npy";

/// An option, a file or an array that the program cannot work with. The message is one line that names it and the
/// values.
struct BadInput : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Throws `Error` with the parts joined into one message.
template <class Error = BadInput, class... Parts>
[[noreturn]] void fail(const Parts&... parts) {
  std::ostringstream message;
  (message << ... << parts);
  throw Error(message.str());
}

}  // namespace attend_npy
