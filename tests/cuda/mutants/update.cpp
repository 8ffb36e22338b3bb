// Sums of chunks in few instantiations, quick to compile.
#include "update_cases.hpp"

using namespace sympow::test;

TEST_CASE("sums of chunks are right", "[cuda]") {
  check_update<Kernels<bf16, 2, 16>>(150);
  check_update<Kernels<bf16, 3, 16>>(100);
  check_update<Kernels<bf16, 2, 32>>(70);
  check_update<Kernels<bf16, 1, 64>>(130);
  check_update<Kernels<bf16, 4, 16>>(70);
  check_update<Kernels<float, 1, 64>>(40);
}
