// Cases of rotary, for every power, number of channels and format.
#pragma once

#include "forward_cases.hpp"

namespace sympow::test {

/// Rotary: both pairings, rates alone and β, in layouts and groups, from angles on that move nothing, and over a cut.
template <class K>
void check_rotary(const std::vector<int>& lengths) {
  const auto steps = [](int t) { return 1 + .9 * std::sin(t); };
  for (const bool halves : {false, true}) {
    CAPTURE(halves);
    Case how = case_of<K>(lengths);
    how.log_gate = [](int t) { return t % 50 == 49 ? -1. : -1e-3; };
    how.rotary = Rotation{halves, {}, 0};
    check<K>(how);
    how.packed = halves;
    how.heads = {4, 4, 2};
    how.rotary->beta = steps;
    check<K>(how);
    check_joined<K>(lengths, 40, Rotation{halves, steps, .3});
  }
}

/// A β that is not a number: so are all rows from its token on.
template <class K>
void check_lost_angles(int length, int place) {
  Case how = case_of<K>({length});
  how.log_gate = [&](int t) { return t == place + 5 ? -infinity : -.01; };
  how.rotary = Rotation{false, [&](int t) { return t == place ? not_a_number : 1.; }, 0};
  check<K>(how);
}

}  // namespace sympow::test
