// The engines are compiled once, in engines.cpp, for every scalar and feature map that the tests run: include this before use.
#pragma once

#include <sympow/attention/attention.hpp>
#include <sympow/attention/chunked.hpp>
#include <sympow/attention/recurrent.hpp>
#include <sympow/feature/exponential.hpp>
#include <sympow/feature/linear.hpp>
#include <sympow/feature/symmetric_power.hpp>
#include <sympow/systems/peer_parameters.hpp>
#include <sympow/transition/decay.hpp>
#include <sympow/transition/gate_distance.hpp>
#include <sympow/transition/householder.hpp>
#include <sympow/transition/product.hpp>
#include <sympow/transition/rotary.hpp>

// clang-format off
#define SYMPOW_TEST_ATTENTION(LINKAGE, S, ...)                                                                             \
  LINKAGE template void sympow::detail::run_attention<S, __VA_ARGS__>(const __VA_ARGS__&,                                  \
                                                                      sympow::detail::AttentionCall<S>);

#define SYMPOW_TEST_FORMS(LINKAGE, S, ...)                                                                                 \
  SYMPOW_TEST_ATTENTION(LINKAGE, S, __VA_ARGS__)                                                                           \
  LINKAGE template void sympow::detail::run_recurrent<S, __VA_ARGS__>(const __VA_ARGS__&,                                  \
                                                                      sympow::detail::StateCall<S, __VA_ARGS__>);          \
  LINKAGE template void sympow::detail::run_chunked<S, __VA_ARGS__>(const __VA_ARGS__&,                                    \
                                                                    sympow::detail::StateCall<S, __VA_ARGS__>);

#define SYMPOW_TEST_ENGINES(LINKAGE)                              \
  SYMPOW_TEST_FORMS(LINKAGE, double, sympow::Linear)              \
  SYMPOW_TEST_FORMS(LINKAGE, double, sympow::SymmetricPower<1>)   \
  SYMPOW_TEST_FORMS(LINKAGE, double, sympow::SymmetricPower<2>)   \
  SYMPOW_TEST_FORMS(LINKAGE, double, sympow::SymmetricPower<3>)   \
  SYMPOW_TEST_FORMS(LINKAGE, double, sympow::SymmetricPower<4>)   \
  SYMPOW_TEST_FORMS(LINKAGE, double, sympow::SymmetricPower<6>)   \
  SYMPOW_TEST_FORMS(LINKAGE, double, sympow::SymmetricPower<8>)   \
  SYMPOW_TEST_FORMS(LINKAGE, float, sympow::Linear)               \
  SYMPOW_TEST_FORMS(LINKAGE, float, sympow::SymmetricPower<1>)    \
  SYMPOW_TEST_FORMS(LINKAGE, float, sympow::SymmetricPower<2>)    \
  SYMPOW_TEST_FORMS(LINKAGE, float, sympow::SymmetricPower<3>)    \
  SYMPOW_TEST_FORMS(LINKAGE, float, sympow::SymmetricPower<4>)    \
  SYMPOW_TEST_FORMS(LINKAGE, float, sympow::SymmetricPower<6>)    \
  SYMPOW_TEST_FORMS(LINKAGE, float, sympow::SymmetricPower<8>)    \
  SYMPOW_TEST_ATTENTION(LINKAGE, double, sympow::Exponential)     \
  SYMPOW_TEST_ATTENTION(LINKAGE, float, sympow::Exponential)

// What transitions do, for the scalar type of the tokens.
#define SYMPOW_TEST_TRANSITIONS(LINKAGE, S)                                                                             \
  LINKAGE template class sympow::detail::ViewOf<S, sympow::Stationary>;                                                 \
  LINKAGE template class sympow::detail::ViewOf<S, sympow::ConstantDecay>;                                              \
  LINKAGE template class sympow::detail::ViewOf<S, sympow::Decay>;                                                      \
  LINKAGE template class sympow::detail::ViewOf<S, sympow::ChannelDecay<double>>;                                       \
  LINKAGE template class sympow::detail::ViewOf<S, sympow::Rotary>;                                                     \
  LINKAGE template class sympow::detail::ViewOf<S, sympow::Householder<S>>;                                             \
  LINKAGE template class sympow::detail::ViewOf<S, sympow::TransitionProduct<sympow::Decay, sympow::Rotary>>;           \
  LINKAGE template class sympow::detail::ViewOf<S, sympow::TransitionProduct<sympow::Decay, sympow::Householder<S>>>;   \
  LINKAGE template class sympow::detail::HouseholderProducts<S>;                                                        \
  LINKAGE template sympow::Matrix<S> sympow::systems::unit_columns(const sympow::Matrix<S>&, double);
// clang-format on

extern template Eigen::MatrixXd sympow::gate_distances(const sympow::ChannelDecay<double>&, sympow::Index,
                                                       sympow::Index);
SYMPOW_TEST_TRANSITIONS(extern, double)
SYMPOW_TEST_TRANSITIONS(extern, float)
SYMPOW_TEST_ENGINES(extern)
