// Reports of kernels that run one after the other, as one.
#pragma once

#include "block/block.hpp"

namespace sympow::test {

inline void join(cuda::block::host::Report& all, const cuda::block::host::Report& more) {
  for (const auto& [what, times] : more.faults) all.faults[what] += times;
  for (const auto& [place, site] : more.sites) {  // kernels share some
    cuda::block::host::Site& sum = all.sites[place];
    sum.instruction = site.instruction;
    sum.executed += site.executed;
    sum.shared.add(site.shared);
    sum.global.add(site.global);
    sum.masked |= site.masked;
    sum.uneven |= site.uneven;
    sum.partial |= site.partial;
  }
}

}  // namespace sympow::test
