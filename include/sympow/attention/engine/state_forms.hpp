// What has a state, under one name for all that is compiled once.
#pragma once

#include <sympow/attention/engine/state_access.hpp>

namespace sympow::detail {

template <class Scalar, FiniteFeatureMap F>
struct StateCall;

/// What has a state, compiled once for a scalar type and a feature map as `AttentionForm` is. A map without an embedding has none.
template <class Scalar, FeatureMap F, int alignment>
struct StateForms {};
template <class Scalar, FiniteFeatureMap F, int alignment>
struct StateForms<Scalar, F, alignment> {
  static void recurrent(const F& feature, StateCall<Scalar, F> call);
  static void chunked(const F& feature, StateCall<Scalar, F> call);
  /// The tail into the sums.
  static void fold(State<Scalar, F>& state);
  /// The sums of `left` into those of `right`, which goes on where it ends; both tails are empty.
  static void add(const State<Scalar, F>& left, State<Scalar, F>& right, Workspace<Scalar>& work);
};

template <class Scalar, FiniteFeatureMap F, int alignment>
void StateForms<Scalar, F, alignment>::fold(State<Scalar, F>& state) {
  Workspace<Scalar> work;
  StateAccess<State<Scalar, F>>{state}.fold(work);
}
template <class Scalar, FiniteFeatureMap F, int alignment>
void StateForms<Scalar, F, alignment>::add(const State<Scalar, F>& left, State<Scalar, F>& right,
                                           Workspace<Scalar>& work) {
  StateAccess<State<Scalar, F>>{right}.add(left, work);
}

}  // namespace sympow::detail
