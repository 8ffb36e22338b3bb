// From what a problem says to the kernels that were compiled for it.
#pragma once

#include "../block/number.hpp"
#include "instantiations.hpp"
#include "refuse.hpp"

namespace sympow::cuda::library {

/// call.operator()<T, P, d, products>() for a problem that was checked.
template <class Call>
Status dispatch(const Problem& problem, const Call& call) {
  using enum block::Products;
#define SYMPOW_CUDA_ROW(power_, d_, floats_)                                                                 \
  if (problem.power == power_ && problem.d == d_) {                                                          \
    if (problem.element == Element::bf16) return call.template operator()<block::bf16, power_, d_, exact>(); \
    if (problem.element == Element::fp16) return call.template operator()<block::fp16, power_, d_, exact>(); \
    if constexpr (floats_) {                                                                                 \
      if (problem.products == Products::fast) return call.template operator()<float, power_, d_, fast>();    \
      return call.template operator()<float, power_, d_, exact>();                                           \
    }                                                                                                        \
  }
  SYMPOW_CUDA_TABLE(SYMPOW_CUDA_ROW)
#undef SYMPOW_CUDA_ROW
  return refuse(Code::not_compiled, "there are no kernels for P %d with d %d", problem.power, problem.d);
}

}  // namespace sympow::cuda::library
