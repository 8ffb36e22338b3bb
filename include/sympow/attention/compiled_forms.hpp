// The forms of a scalar type, compiled in one place for all of a program.
#pragma once

#include <sympow/attention/form_calls.hpp>
#include <sympow/feature/exponential.hpp>
#include <sympow/feature/pass_feature.hpp>
#include <sympow/transition/decay.hpp>
#include <sympow/transition/householder.hpp>
#include <sympow/transition/product.hpp>
#include <sympow/transition/rotary.hpp>

/// DO(LINKAGE, Scalar, map) of what passes see of all maps: a power, an embedded score, or `Exponential`.
#define SYMPOW_PASS_FEATURES(DO, LINKAGE, Scalar)              \
  DO(LINKAGE, Scalar, sympow::detail::PowerFeature<Scalar>)    \
  DO(LINKAGE, Scalar, sympow::detail::EmbeddedFeature<Scalar>) \
  DO(LINKAGE, Scalar, sympow::Exponential)
#define SYMPOW_CALLS(LINKAGE, Scalar, ...)                                    \
  LINKAGE template struct sympow::detail::FormCalls<Scalar, __VA_ARGS__>;     \
  LINKAGE template struct sympow::detail::ForwardPasses<Scalar, __VA_ARGS__>; \
  LINKAGE template struct sympow::detail::StateOperations<Scalar, __VA_ARGS__>;

/// DO(LINKAGE, Scalar, transition) of the usual transitions.
#define SYMPOW_USUAL_TRANSITIONS(DO, LINKAGE, Scalar)                           \
  DO(LINKAGE, Scalar, sympow::Stationary)                                       \
  DO(LINKAGE, Scalar, sympow::ConstantDecay)                                    \
  DO(LINKAGE, Scalar, sympow::Decay)                                            \
  DO(LINKAGE, Scalar, sympow::ChannelDecay<double>)                             \
  DO(LINKAGE, Scalar, sympow::Rotary)                                           \
  DO(LINKAGE, Scalar, sympow::Householder<Scalar>)                              \
  DO(LINKAGE, Scalar, sympow::TransitionProduct<sympow::Decay, sympow::Rotary>) \
  DO(LINKAGE, Scalar, sympow::TransitionProduct<sympow::Decay, sympow::Householder<Scalar>>)

/// What they do to queries and keys of a scalar type.
#define SYMPOW_VIEW(LINKAGE, Scalar, ...) LINKAGE template class sympow::detail::ViewOf<Scalar, __VA_ARGS__>;
#define SYMPOW_TRANSITIONS(LINKAGE, Scalar)                           \
  SYMPOW_USUAL_TRANSITIONS(SYMPOW_VIEW, LINKAGE, Scalar)              \
  LINKAGE template class sympow::detail::HouseholderProducts<Scalar>; \
  LINKAGE template Eigen::MatrixXd sympow::Householder<Scalar>::key_matrix(Index, Index) const;

/// The forms of all feature maps, yours included, and what is done to states.
#define SYMPOW_ALL_FORMS(LINKAGE, Scalar) SYMPOW_PASS_FEATURES(SYMPOW_CALLS, LINKAGE, Scalar)

#ifdef SYMPOW_COMPILED_FORMS
SYMPOW_ALL_FORMS(extern, float)
SYMPOW_ALL_FORMS(extern, double)
SYMPOW_TRANSITIONS(extern, float)
SYMPOW_TRANSITIONS(extern, double)
#endif
