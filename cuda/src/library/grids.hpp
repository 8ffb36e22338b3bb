// The grids of the kernels that take whole sequences.
#pragma once

#include "../attention/linear_attention.hpp"
#include "../levels/levels.hpp"
#include "../scan/scan.hpp"
#include "../update/update.hpp"
#include "../weights/weights.hpp"
#include "plan.hpp"

namespace sympow::cuda::library {

/// What `attend` launches; `fold` all but the last. Levels, update and scan are of states.
struct Grids {
  Blocks weights, levels, update, scan, attention;

  [[nodiscard]] bool fit(bool states) const {
    return weights.fit() && attention.fit() && (!states || (levels.fit() && update.fit() && scan.fit()));
  }
};

/// call.operator()<the kernel of rows>().
template <class T, int P, int d, block::Products products, class Call>
auto with_rows(Form form, const Call& call) {
  if constexpr (goes_along<T, P, d>)
    if (form == Form::chunked) return call.template operator()<LinearAttention<T, d>>();
  return call.template operator()<Attention<T, P, d, products>>();
}

/// Sequences × chunks are below 2^31, so that no product here leaves its 64 bits.
template <class T, int P, int d, block::Products products>
Grids grids_of(const Sequences& sequences, const Heads& heads, int e, Form form) {
  return {Weights<T>::blocks(sequences, heads), Levels::blocks(sequences, heads),
          Update<T, P, d, products>::blocks(sequences, heads, e), Scan<T>::blocks(sequences, heads, P, d, e),
          with_rows<T, P, d, products>(form, [&]<class Kernel>() { return Kernel::blocks(sequences, heads, e); })};
}

}  // namespace sympow::cuda::library
