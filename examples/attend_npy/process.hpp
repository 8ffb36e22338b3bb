// What the program has to do with its process: messages, signals, and the end of memory.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <exception>

#include "output_files.hpp"

namespace attend_npy {

/// Says why there is no result, in one line whatever a file's name or header holds; returns the exit status. Allocates
/// nothing.
inline int refuse(const char* message) noexcept {
  std::fputs(program_name, stderr);
  std::fputs(": ", stderr);
  for (; *message != '\0'; ++message) {
    const auto byte = static_cast<unsigned char>(*message);
    std::fputc(byte < 32 || byte == 127 ? '?' : byte, stderr);
  }
  std::fputc('\n', stderr);
  return 2;
}

inline int refuse_for_memory() noexcept { return refuse("there is not enough memory for these arrays"); }

/// To be called first. A stream that is closed stays without a file of ours in its place; a limit on the size of files
/// and a reader that is gone are errors of writing; other ends leave no partial file; and where there is no memory to
/// throw an exception, the exit status says so.
inline void prepare_process() {
  int file = open("/dev/null", O_RDONLY);
  while (0 <= file && file <= STDERR_FILENO) file = open("/dev/null", O_RDONLY);
  if (file > STDERR_FILENO) close(file);
  std::signal(SIGXFSZ, SIG_IGN);
  std::signal(SIGPIPE, SIG_IGN);
  for (const int number : {SIGINT, SIGTERM, SIGHUP})
    if (std::signal(number, SIG_IGN) != SIG_IGN)
      std::signal(number, [](int caught) {
        remove_partial_files();
        std::signal(caught, SIG_DFL);
        std::raise(caught);
      });
  std::set_terminate([] {
    remove_partial_files();
    _exit(refuse_for_memory());
  });
}

}  // namespace attend_npy
