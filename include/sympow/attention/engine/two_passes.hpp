// Queries that all see all keys, through a state.
#pragma once

#include <sympow/attention/engine/ordinary_engine.hpp>

namespace sympow::detail {

/// All keys into the state, then all queries against it, from where the first key stood.
template <class Scalar, FiniteFeatureMap F>
void run_two_passes(const F& feature, StateCall<Scalar, F> call) {
  Frame start = call.state.frame;
  call.reads = false;
  OrdinaryEngine<Scalar, F>(feature, call).run_all(call.K.cols(), chunk_of(call.options, call.shape(call.K.cols())));
  call.reads = true;
  call.standing = &start;
  OrdinaryEngine<Scalar, F>(feature, call).run_all(call.Q.cols(), chunk_of(call.options, call.shape(call.Q.cols())));
}

}  // namespace sympow::detail
