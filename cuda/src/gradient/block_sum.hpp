// The sum of all lanes of a block.
#pragma once

#include "../block/block.hpp"

namespace sympow::cuda {

/// Sums of warps, each over its lanes, in order: in warp 0; the others get 0. Takes 8 bytes of shared memory a warp,
/// the first of it, which nobody else uses.
template <int warps>
SYMPOW_DEVICE Lanes<double> block_sum(Lanes<double> x, int w) {
  using namespace block;
  SYMPOW_UNROLL
  for (int mask = 1; mask < 32; mask *= 2) x += shuffle_xor(x, mask);
  const auto sums = Arena().take<double>(warps);
  const Lanes<double> own[1] = {x};
  store(sums, lane() + w, own, lane() == 0);
  barrier();
  Lanes<double> all = 0.;
  if (w != 0) return all;
  SYMPOW_UNROLL
  for (int v = 0; v < warps; ++v) all += load_one(sums, Lanes<int>(v));
  return all;
}

}  // namespace sympow::cuda
