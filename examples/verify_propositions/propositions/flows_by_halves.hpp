// How flows through gates and angles are added up without differences.
#pragma once

#include <sympow/core/concepts.hpp>

namespace SYMPOW_NAMESPACE::verify::detail {

/// flow_t += Σ_{a≤j<t≤i<b} f_ij with f_ij at (j, i), by halves: suffix sums over the right one, sums before t over the
/// left one.
template <class S, class Pairs>
void add_flows_by_halves(const Pairs& f, Index a, Index b, Vector<S>& flow) {
  if (b - a == 1) return;
  const Index middle = (a + b) / 2;
  add_flows_by_halves(f, a, middle, flow), add_flows_by_halves(f, middle, b, flow);
  S behind(0), before(0);
  for (Index i = b - 1; i >= middle; --i) {  // of rows at or behind t
    for (Index j = a; j < middle; ++j) behind += static_cast<S>(f(j, i));
    flow[i] += behind;
  }
  for (Index j = a; j < middle; ++j) {  // of keys before t
    flow[j] += before;
    for (Index i = middle; i < b; ++i) before += static_cast<S>(f(j, i));
  }
}

}  // namespace SYMPOW_NAMESPACE::verify::detail
