// The forms of a scalar type and a feature map, compiled in one place for all of a program.
#pragma once

#include <sympow/attention/form_calls.hpp>
#include <sympow/feature/exponential.hpp>
#include <sympow/feature/linear.hpp>
#include <sympow/feature/random_features.hpp>
#include <sympow/feature/symmetric_power.hpp>
#include <sympow/transition/decay.hpp>
#include <sympow/transition/householder.hpp>
#include <sympow/transition/product.hpp>
#include <sympow/transition/rotary.hpp>

/// Says that the forms of a feature map are compiled elsewhere: in whatever follows a call costs the compiler a few
/// seconds instead of ten. Without `SYMPOW_INSTANTIATE_FORMS` in one source file the linker names what is missing,
/// `FormCalls<Scalar, Feature>::check`. Transitions are not covered. Use it outside of every namespace, with the
/// full name of the map, before the first call:
///
///     SYMPOW_EXTERN_FORMS(float, mine::Map)          // in a header of yours
///     SYMPOW_INSTANTIATE_FORMS(float, mine::Map)     // in one source file
#define SYMPOW_EXTERN_FORMS(Scalar, ...) SYMPOW_FORMS(extern, Scalar, __VA_ARGS__)

/// Compiles the attention form, the recurrent and the chunked one, and what is done to states, for a scalar type and a
/// feature map. Use it outside of every namespace as well.
#define SYMPOW_INSTANTIATE_FORMS(Scalar, ...) SYMPOW_FORMS(, Scalar, __VA_ARGS__)

#define SYMPOW_FORMS(LINKAGE, Scalar, ...)                                   \
  LINKAGE template class sympow::detail::PassFeatureOf<Scalar, __VA_ARGS__>; \
  LINKAGE template struct sympow::detail::FormCalls<Scalar, __VA_ARGS__>;

/// The passes, which see a feature map as one of three: a power, an embedded score, or `Exponential`.
#define SYMPOW_PASSES(LINKAGE, Scalar, ...)                                   \
  LINKAGE template struct sympow::detail::ForwardPasses<Scalar, __VA_ARGS__>; \
  LINKAGE template struct sympow::detail::StateOperations<Scalar, __VA_ARGS__>;

/// DO(LINKAGE, Scalar, map) of all powers, and of the feature maps that the library `sympow::forms` holds.
#define SYMPOW_POWERS(DO, LINKAGE, Scalar)       \
  DO(LINKAGE, Scalar, sympow::SymmetricPower<1>) \
  DO(LINKAGE, Scalar, sympow::SymmetricPower<2>) \
  DO(LINKAGE, Scalar, sympow::SymmetricPower<3>) \
  DO(LINKAGE, Scalar, sympow::SymmetricPower<4>) \
  DO(LINKAGE, Scalar, sympow::SymmetricPower<5>) \
  DO(LINKAGE, Scalar, sympow::SymmetricPower<6>) \
  DO(LINKAGE, Scalar, sympow::SymmetricPower<7>) \
  DO(LINKAGE, Scalar, sympow::SymmetricPower<8>)
#define SYMPOW_FEATURE_MAPS(DO, LINKAGE, Scalar) \
  SYMPOW_POWERS(DO, LINKAGE, Scalar)             \
  DO(LINKAGE, Scalar, sympow::Linear)            \
  DO(LINKAGE, Scalar, sympow::Exponential)       \
  DO(LINKAGE, Scalar, sympow::PositiveRandomFeatures)

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
  LINKAGE template class sympow::Householder<Scalar>;

/// What the library `sympow::forms` holds for a scalar type.
#define SYMPOW_ALL_FORMS(LINKAGE, Scalar)                                 \
  SYMPOW_PASSES(LINKAGE, Scalar, sympow::detail::PowerFeature<Scalar>)    \
  SYMPOW_PASSES(LINKAGE, Scalar, sympow::detail::EmbeddedFeature<Scalar>) \
  SYMPOW_PASSES(LINKAGE, Scalar, sympow::Exponential)                     \
  SYMPOW_FEATURE_MAPS(SYMPOW_FORMS, LINKAGE, Scalar)

#ifdef SYMPOW_COMPILED_FORMS
SYMPOW_ALL_FORMS(extern, float)
SYMPOW_ALL_FORMS(extern, double)
SYMPOW_TRANSITIONS(extern, float)
SYMPOW_TRANSITIONS(extern, double)
#endif
