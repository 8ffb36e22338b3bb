// From what a problem says to the kernels that were compiled for it.
#pragma once

#include "../block/number.hpp"
#include "instantiations.hpp"
#include "refuse.hpp"

namespace sympow::cuda::library {

/// call.operator()<T, P, d>() for a problem that was checked.
template <class Call>
Status dispatch(const Problem& problem, const Call& call) {
#define SYMPOW_CUDA_ROW(power_, d_)                                                               \
  if (problem.power == power_ && problem.d == d_)                                                 \
    return problem.element == Element::bf16 ? call.template operator()<block::bf16, power_, d_>() \
                                            : call.template operator()<block::fp16, power_, d_>();
  SYMPOW_CUDA_TABLE(SYMPOW_CUDA_ROW)
#undef SYMPOW_CUDA_ROW
  return refuse(Code::not_compiled, "there are no kernels for P %d with d %d", problem.power, problem.d);
}

}  // namespace sympow::cuda::library
