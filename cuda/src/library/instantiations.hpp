// Powers, dimensions and elements of which kernels were compiled: SYMPOW_CUDA_INSTANTIATIONS, the list that CMake was
// given.
#pragma once

#include <sympow_cuda_instantiations.hpp>  // SYMPOW_CUDA_TABLE(X): X(P, d, whether of floats, too) for each of them

#include <sympow/cuda/view.hpp>

namespace sympow::cuda::library {

struct Instantiation {
  int power, d;
  bool floats;
};

#define SYMPOW_CUDA_ROW(P, d, floats) {P, d, floats},
inline constexpr Instantiation instantiations[] = {SYMPOW_CUDA_TABLE(SYMPOW_CUDA_ROW)};
#undef SYMPOW_CUDA_ROW

constexpr bool is_compiled(int power, int d, Element element) {
  for (const Instantiation& i : instantiations)
    if (i.power == power && i.d == d && (element != Element::f32 || i.floats)) return true;
  return false;
}

}  // namespace sympow::cuda::library
