// The grids of the kernels that take whole sequences.
#pragma once

#include "../attention/attention.hpp"
#include "../levels/levels.hpp"
#include "../scan/scan.hpp"
#include "../update/update.hpp"
#include "../weights/weights.hpp"

namespace sympow::cuda::library {

/// What `attend` launches; `fold` all but the last. Levels, update and scan are of states.
struct Grids {
  Blocks weights, levels, update, scan, attention;

  [[nodiscard]] bool fit(bool states) const {
    return weights.fit() && attention.fit() && (!states || (levels.fit() && update.fit() && scan.fit()));
  }
};

/// Sequences × chunks are below 2^31, so that no product here leaves its 64 bits.
template <class T, int P, int d, block::Products products>
Grids grids_of(const Sequences& sequences, const Heads& heads, int e) {
  return {Weights<T>::blocks(sequences, heads), Levels::blocks(sequences, heads),
          Update<T, P, d, products>::blocks(sequences, heads, e), Scan<T>::blocks(sequences, heads, P, d, e),
          Attention<T, P, d, products>::blocks(sequences, heads, e)};
}

}  // namespace sympow::cuda::library
