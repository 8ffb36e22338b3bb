// The three forms as passes over the tokens of a call, under names by which all of it is compiled once.
#pragma once

#include <sympow/detail/forward.hpp>

namespace SYMPOW_NAMESPACE::detail {

/// The three forms, compiled once for a scalar type and a feature map, see `SYMPOW_INSTANTIATE_FORMS`. A map without an
/// embedding has no state.
template <class Scalar, FeatureMap F>
struct ForwardPasses {
  static void attention(const F& feature, const ForwardCall<Scalar>& call);
  static void recurrent(const F& feature, const ForwardCall<Scalar>& call)
    requires has_embedding<F>;
  static void chunked(const F& feature, const ForwardCall<Scalar>& call)
    requires has_embedding<F>;
};
/// Those of embedded scores are compiled for their interface.
template <class Scalar, FeatureMap F>
  requires is_own_embedded<Scalar, F>
struct ForwardPasses<Scalar, F> {};

template <class Scalar, FeatureMap F>
void ForwardPasses<Scalar, F>::attention(const F& feature, const ForwardCall<Scalar>& call) {
  constexpr Index most = 240;  // tokens of a segment: products of more than 256 terms are made in two steps
  const Index T = call.tokens(), n = std::clamp<Index>(T, 1, most);
  const Index before = std::clamp<Index>(-call.options.mask.offset, 0, call.Y.cols());  // queries before token 0
  call.Y.leftCols(before).setZero();
  for (Index i = 0; i < before; ++i) call.reports().report(i, 0, 0, 0, false);
  auto& memory = call.memory;
  LoadedSegment<Scalar, F> segment(memory.segment, feature, call.transition, call.options.scale, call.K.rows(), n,
                                   scores_need_features(feature));
  RowsOf<Scalar, F> rows(memory.rows, call.rows, call.reports(), call.options.mask, call.V.rows(), n, n);
  KeyPast<Scalar, F> past(memory.keys, feature, call.transition.key_action(), call.options.mask, segment.vector_rows(),
                          call.V.rows(), call.K.cols(), n);
  if (!call.options.mask.is_full)
    return forward(call, {.tokens = T, .most = n, .keeps_past = false}, segment, rows, past);
  forward(call, {.tokens = T, .most = n, .has_queries = false}, segment, rows, past);
  past.frame().clear();
  forward(call, {.tokens = T, .most = n, .updates_past = false}, segment, rows, past);
}

/// A pass through the state of a call. `fixed_frame` is where queries turn from while the state stands still.
template <class Scalar, FeatureMap F>
void pass_through_state(const F& feature, const ForwardCall<Scalar>& call, PassSteps steps,
                        Frame* fixed_frame = nullptr) {
  StateContent<Scalar>& state = *call.state;
  steps.most = std::clamp<Index>(steps.most, 1, std::max<Index>(steps.tokens, 1));
  auto& memory = call.memory;
  LoadedSegment<Scalar, F> segment(memory.segment, feature, call.transition, call.options.scale, call.K.rows(),
                                   steps.most, F::score == Score::embedded);
  PowerRows<Scalar, F> rows(memory.rows, call.rows, call.reports(), call.options.mask, call.V.rows(), steps.most,
                            std::max(steps.most, state.sums.recent.capacity()));
  StatePast<Scalar, F> past(memory.state, feature, call.transition, state, steps.most, rows.diagnoses(), fixed_frame);
  state.interrupted = true;  // until the call is done
  forward(call, steps, segment, rows, past);
}

template <class Scalar, FeatureMap F>
void ForwardPasses<Scalar, F>::recurrent(const F& feature, const ForwardCall<Scalar>& call)
  requires has_embedding<F>
{
  if (call.options.mask.is_full) return chunked(feature, call);
  pass_through_state<Scalar>(
      feature, call, {.tokens = call.K.cols(), .most = 1, .is_literal = call.state->sums.recent.capacity() == 0});
}

template <class Scalar, FeatureMap F>
void ForwardPasses<Scalar, F>::chunked(const F& feature, const ForwardCall<Scalar>& call)
  requires has_embedding<F>
{
  const auto chunk = [&](Index tokens) {
    if (call.options.chunk > 0) return call.options.chunk;
    return cheapest_chunk({.T = tokens,
                           .d = call.K.rows(),
                           .e = call.V.rows(),
                           .D = static_cast<double>(call.state->sums.Z.size()),
                           .action = call.transition.key_action(),
                           .is_full = call.options.mask.is_full,
                           .keeps_state = true,
                           .from_nothing = call.state->frames.tokens == 0},
                          call.options.costs);
  };
  const Index keys = call.K.cols(), queries = call.Q.cols();
  if (!call.has_queries || !call.options.mask.is_full)
    return pass_through_state<Scalar>(feature, call,
                                      {.tokens = keys, .most = chunk(keys), .has_queries = call.has_queries});
  Frame start = call.state->frames.end;  // all keys go into the state, then all queries stand against it
  pass_through_state<Scalar>(feature, call, {.tokens = keys, .most = chunk(keys), .has_queries = false});
  pass_through_state<Scalar>(feature, call, {.tokens = queries, .most = chunk(queries), .updates_past = false}, &start);
}

}  // namespace SYMPOW_NAMESPACE::detail
