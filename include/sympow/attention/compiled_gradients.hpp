// The gradients of a scalar type, compiled in one place for all of a program.
#pragma once

#include <sympow/attention/compiled_forms.hpp>
#include <sympow/attention/gradient_calls.hpp>

/// Those of all feature maps, as `SYMPOW_ALL_FORMS`.
#define SYMPOW_GRADIENT_CALLS(LINKAGE, Scalar, ...)                           \
  LINKAGE template struct sympow::detail::GradientCalls<Scalar, __VA_ARGS__>; \
  LINKAGE template struct sympow::detail::BackwardPasses<Scalar, __VA_ARGS__>;
#define SYMPOW_ALL_GRADIENTS(LINKAGE, Scalar) SYMPOW_PASS_FEATURES(SYMPOW_GRADIENT_CALLS, LINKAGE, Scalar)

/// What the usual transitions do on the way back.
#define SYMPOW_VJP_VIEW(LINKAGE, Scalar, ...) LINKAGE template class sympow::detail::VjpViewOf<Scalar, __VA_ARGS__>;
#define SYMPOW_TRANSITION_GRADIENTS(LINKAGE, Scalar) SYMPOW_USUAL_TRANSITIONS(SYMPOW_VJP_VIEW, LINKAGE, Scalar)

#ifdef SYMPOW_COMPILED_GRADIENTS
SYMPOW_TRANSITION_GRADIENTS(extern, float)
SYMPOW_TRANSITION_GRADIENTS(extern, double)
SYMPOW_ALL_GRADIENTS(extern, float)
SYMPOW_ALL_GRADIENTS(extern, double)
#endif
