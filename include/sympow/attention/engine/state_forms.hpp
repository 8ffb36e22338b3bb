// The recurrent and the chunked form, under one name for all that is compiled once.
#pragma once

#include <sympow/attention/engine/state_engine.hpp>

namespace sympow::detail {

/// What has a state, compiled once for a scalar type and a feature map as `AttentionForm` is. A map without an embedding has none.
template <class Scalar, FeatureMap F, int alignment = EIGEN_MAX_ALIGN_BYTES>
struct StateForms {};
template <class Scalar, FiniteFeatureMap F, int alignment>
struct StateForms<Scalar, F, alignment> {
  static void recurrent(const F& feature, StateCall<Scalar, F> call);
  static void chunked(const F& feature, StateCall<Scalar, F> call);
};

template <class Scalar, FiniteFeatureMap F, int alignment>
void StateForms<Scalar, F, alignment>::recurrent(const F& feature, StateCall<Scalar, F> call) {
  if (call.options.mask.is_full) return chunked(feature, call);
  StateEngine<Scalar, F> engine(feature, call);
  if (call.state.tail() == 0)
    engine.run_literally(call.K.cols());
  else
    engine.run(call.K.cols(), 1);
}

template <class Scalar, FiniteFeatureMap F, int alignment>
void StateForms<Scalar, F, alignment>::chunked(const F& feature, StateCall<Scalar, F> call) {
  const auto run = [&](Index tokens) { StateEngine<Scalar, F>(feature, call).run(tokens, call.chunk(tokens)); };
  if (!call.reads || !call.options.mask.is_full) return run(call.K.cols());
  Frame start = call.state.frame();  // all keys go into the state, then all queries stand against it
  call.reads = false;
  run(call.K.cols());
  call.reads = true;
  call.standing = &start;
  run(call.Q.cols());
}

}  // namespace sympow::detail
