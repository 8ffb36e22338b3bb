// A kernel broken on purpose while it runs: each barrier, wait, predicate and index in turn.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "report.hpp"

namespace sympow::cuda::block::host {

enum class Change {
  none,
  skip,              ///< the instruction is not executed
  unmask,            ///< its predicate is always true
  whole_copy,        ///< cp.async brings all bytes, none is zero
  wait_less,         ///< one group more may be pending
  exchange_lanes,    ///< lanes 2 l and 2 l + 1 exchange their addresses (in shared memory, where there are two)
  exchange_a,        ///< mma: registers 1 and 2 of A
  exchange_b,        ///< mma: registers 0 and 1 of B
  exchange_c,        ///< mma: registers 1 and 2 of the result
  exchange_results,  ///< ldmatrix: the first and the last register
};

struct Mutation {
  Place place;
  Change change = Change::none;
};

/// All changes of the instructions that a run executed. A kernel without a needless instruction survives none: its
/// results are wrong, or the run has faults.
inline std::vector<Mutation> mutations(const Report& clean) {
  std::vector<Mutation> all;
  for (const auto& [place, site] : clean.sites) {
    const std::string_view name = site.instruction;
    const auto add = [&, at = place](Change change) { all.push_back({at, change}); };
    const bool moves =
        name.starts_with("load") || name.starts_with("store") || name == "cp_async" || name == "ldmatrix";
    if (moves || name == "mma" || name.starts_with("group") || name == "publish" || name.starts_with("bar") ||
        name == "warp_barrier" || name.starts_with("cp_async"))
      add(Change::skip);
    if (site.masked) add(Change::unmask);
    if (site.partial) add(Change::whole_copy);
    if (site.uneven) add(Change::exchange_lanes);
    if (name == "cp_async_wait" || name == "group_wait") add(Change::wait_less);
    if (name == "ldmatrix") add(Change::exchange_results);
    if (name == "mma")
      for (const Change c : {Change::exchange_a, Change::exchange_b, Change::exchange_c}) add(c);
  }
  return all;
}

/// "gemm.hpp:52 skip"
inline std::string text(const Mutation& mutation) {
  static constexpr const char* names[] = {
      "none",           "skip",       "unmask",     "whole copy", "wait less",
      "exchange lanes", "exchange a", "exchange b", "exchange c", "exchange results"};
  return mutation.place.text() + " " + names[static_cast<int>(mutation.change)];
}

}  // namespace sympow::cuda::block::host
