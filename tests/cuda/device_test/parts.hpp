// The parts of a test program for GPUs, and which of them run.
#pragma once

#include <chrono>
#include <cstring>
#include <initializer_list>

#include "device.hpp"
#include "require.hpp"

namespace sympow::test {

struct Part {
  const char* name;
  void (*run)();
  bool needs_gpu = true;
};

/// Runs the parts that are named, without names all, and says how long each took. Returns the status of the program.
/// `--only TEXT` in front leaves out cases whose name does not contain TEXT.
inline int run_parts(std::initializer_list<Part> parts, int count, char** names) {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);  // a run that is cut off leaves what it printed
  if (count > 2 && std::strcmp(names[1], "--only") == 0) only = names[2], names += 2, count -= 2;
  int gpus = 0;
  if (cudaGetDeviceCount(&gpus) != cudaSuccess) gpus = 0;
  for (const Part& part : parts) {
    bool wanted = count == 1;
    for (int i = 1; i < count; ++i) wanted = wanted || std::strcmp(names[i], part.name) == 0;
    if (!wanted || (part.needs_gpu && gpus == 0)) continue;
    const auto begin = std::chrono::steady_clock::now();
    part.run();
    std::printf("%s: %.1f s\n", part.name,
                std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  }
  if (gpus == 0) std::printf("There is no GPU here: only the refusals of bad arguments were tested.\n");
  if (failures > 0) std::printf("%d requirements failed.\n", failures);
  return failures > 0;
}

}  // namespace sympow::test
