// What a forward pass leaves for its backward pass.
#pragma once

#include <vector>

#include <sympow/detail/state_sums.hpp>
#include <sympow/transition/transition.hpp>

namespace SYMPOW_NAMESPACE::detail {

/// Row i is 2^{levels_i} beside its numbers, with the denominator `denominators_i` beside it, 0 for a degenerate row.
/// Of each segment its tokens and the frame before it; of a state form the state before every `spacing`-th of them.
template <class Scalar>
struct Tape {
  Vector<double> levels;
  Vector<Scalar> denominators;
  std::vector<Segment> segments;
  std::vector<Frame> frames;
  std::vector<StateSums<Scalar>> states;
  std::size_t spacing = 1;

  /// Of so many rows.
  void begin(Index rows) {
    resize_safely(levels, rows), resize_safely(denominators, rows);
    segments.clear(), frames.clear(), states.clear();
  }
  void keep(Segment range, auto& past) {
    if constexpr (requires { past.sums(); })
      if (segments.size() % spacing == 0) states.push_back(past.sums());
    segments.push_back(range);
    frames.push_back(past.frame());
  }
};

}  // namespace SYMPOW_NAMESPACE::detail
