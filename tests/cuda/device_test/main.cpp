// All functions of sympow::cuda on a GPU:  device_test [part ...]
//
// Rows are compared with the definition in double, by a bound that follows from the roundings that kernels make.
#include <chrono>
#include <cstring>

#include "device.hpp"
#include "tests.hpp"

using namespace sympow::test;

int main(int count, char** names) {
  const struct {
    const char* name;
    void (*run)();
    bool needs_gpu;
  } parts[] = {{"refusals", test_refusals, false}, {"rows", test_rows, true},
               {"states", test_states, true},      {"decoding", test_decoding, true},
               {"streams", test_streams, true},    {"gradients", test_gradients, true}};
  int gpus = 0;
  if (cudaGetDeviceCount(&gpus) != cudaSuccess) gpus = 0;
  for (const auto& part : parts) {
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
