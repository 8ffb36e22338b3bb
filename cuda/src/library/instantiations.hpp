// Powers and dimensions of which kernels were compiled: SYMPOW_CUDA_INSTANTIATIONS, the list that CMake was given.
#pragma once

#include <sympow_cuda_instantiations.hpp>  // SYMPOW_CUDA_TABLE(X): X(P, d) for each of them

namespace sympow::cuda::library {

struct Instantiation {
  int power, d;
};

#define SYMPOW_CUDA_ROW(P, d) {P, d},
inline constexpr Instantiation instantiations[] = {SYMPOW_CUDA_TABLE(SYMPOW_CUDA_ROW)};
#undef SYMPOW_CUDA_ROW

constexpr bool is_compiled(int power, int d) {
  for (const Instantiation& i : instantiations)
    if (i.power == power && i.d == d) return true;
  return false;
}

}  // namespace sympow::cuda::library
