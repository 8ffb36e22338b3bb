// The recurrent and the chunked form, under one name for all that is compiled once.
#pragma once

#include <sympow/attention/engine/state_engine.hpp>

namespace SYMPOW_NAMESPACE::detail {

/// What has a state, compiled once for a scalar type and a feature map as `AttentionForm` is. A map without an
/// embedding has none.
template <class Scalar, FeatureMap F>
struct StateForms {};
template <class Scalar, FeatureMap F>
  requires has_embedding<F>
struct StateForms<Scalar, F> {
  static void recurrent(const F& feature, StateCall<Scalar> call);
  static void chunked(const F& feature, StateCall<Scalar> call);
};

template <class Scalar, FeatureMap F>
  requires has_embedding<F>
void StateForms<Scalar, F>::recurrent(const F& feature, StateCall<Scalar> call) {
  if constexpr (is_own_embedded<Scalar, F>) {
    StateForms<Scalar, EmbeddedFeature<Scalar>>::recurrent(EmbeddedFeatureOf<Scalar, F>(feature), call);
  } else {
    if (call.options.mask.is_full) return chunked(feature, call);
    StateEngine<Scalar, F> engine(feature, call);
    if (call.state.tail.capacity() == 0)
      engine.run_literally(call.K.cols());
    else
      engine.run(call.K.cols(), 1);
  }
}

template <class Scalar, FeatureMap F>
  requires has_embedding<F>
void StateForms<Scalar, F>::chunked(const F& feature, StateCall<Scalar> call) {
  if constexpr (is_own_embedded<Scalar, F>) {
    StateForms<Scalar, EmbeddedFeature<Scalar>>::chunked(EmbeddedFeatureOf<Scalar, F>(feature), call);
  } else {
    const auto run = [&](Index tokens) { StateEngine<Scalar, F>(feature, call).run(tokens, call.chunk(tokens)); };
    if (!call.reads || !call.options.mask.is_full) return run(call.K.cols());
    Frame start = call.state.frames.end;  // all keys go into the state, then all queries stand against it
    call.reads = false;
    run(call.K.cols());
    call.reads = true;
    call.standing = &start;
    run(call.Q.cols());
  }
}

}  // namespace SYMPOW_NAMESPACE::detail
