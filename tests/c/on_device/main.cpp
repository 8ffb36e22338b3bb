// The C interface with arrays on a GPU:  c_on_device [part ...]
#include <cstring>

#include "cuda/device_test/device.hpp"
#include "tests.hpp"

using namespace sympow::test;

int main(int count, char** names) {
  const struct {
    const char* name;
    void (*run)();
    bool needs_gpu;
  } parts[] = {{"refusals", test_refusals, false}, {"calls", test_calls, true}, {"states", test_states, true}};
  int gpus = 0;
  if (cudaGetDeviceCount(&gpus) != cudaSuccess) gpus = 0;
  for (const auto& part : parts) {
    bool wanted = count == 1;
    for (int i = 1; i < count; ++i) wanted = wanted || std::strcmp(names[i], part.name) == 0;
    if (!wanted || (part.needs_gpu && gpus == 0)) continue;
    std::printf("%s\n", part.name);
    part.run();
  }
  if (gpus == 0) std::printf("There is no GPU here: only the refusals of bad arguments were tested.\n");
  if (failures > 0) std::printf("%d requirements failed.\n", failures);
  return failures > 0;
}
