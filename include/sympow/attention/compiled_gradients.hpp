// The gradients of a scalar type and a feature map, compiled in one place for all of a program.
#pragma once

#include <sympow/attention/compiled_forms.hpp>
#include <sympow/attention/gradient_calls.hpp>

/// As `SYMPOW_EXTERN_FORMS` and `SYMPOW_INSTANTIATE_FORMS`, of `attention_vjp`, `chunked_vjp` and `attend_vjp`.
#define SYMPOW_EXTERN_GRADIENTS(Scalar, ...) SYMPOW_GRADIENTS(extern, Scalar, __VA_ARGS__)
#define SYMPOW_INSTANTIATE_GRADIENTS(Scalar, ...) SYMPOW_GRADIENTS(, Scalar, __VA_ARGS__)

#define SYMPOW_GRADIENTS(LINKAGE, Scalar, ...) \
  LINKAGE template struct sympow::detail::GradientCalls<Scalar, __VA_ARGS__>;

/// The passes, which see a feature map as one of three.
#define SYMPOW_BACKWARD_PASSES(LINKAGE, Scalar, ...) \
  LINKAGE template struct sympow::detail::BackwardPasses<Scalar, __VA_ARGS__>;

/// Those of the maps in `SYMPOW_ALL_FORMS`.
#define SYMPOW_ALL_GRADIENTS(LINKAGE, Scalar)                                      \
  SYMPOW_BACKWARD_PASSES(LINKAGE, Scalar, sympow::detail::PowerFeature<Scalar>)    \
  SYMPOW_BACKWARD_PASSES(LINKAGE, Scalar, sympow::detail::EmbeddedFeature<Scalar>) \
  SYMPOW_BACKWARD_PASSES(LINKAGE, Scalar, sympow::Exponential)                     \
  SYMPOW_FEATURE_MAPS(SYMPOW_GRADIENTS, LINKAGE, Scalar)

/// What the usual transitions do on the way back.
#define SYMPOW_VJP_VIEW(LINKAGE, Scalar, ...) LINKAGE template class sympow::detail::VjpViewOf<Scalar, __VA_ARGS__>;
#define SYMPOW_TRANSITION_GRADIENTS(LINKAGE, Scalar) SYMPOW_USUAL_TRANSITIONS(SYMPOW_VJP_VIEW, LINKAGE, Scalar)

#ifdef SYMPOW_COMPILED_GRADIENTS
SYMPOW_TRANSITION_GRADIENTS(extern, float)
SYMPOW_TRANSITION_GRADIENTS(extern, double)
SYMPOW_ALL_GRADIENTS(extern, float)
SYMPOW_ALL_GRADIENTS(extern, double)
#endif
