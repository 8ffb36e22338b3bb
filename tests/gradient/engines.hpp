// The gradients of the maps and scalar types that tests call are compiled elsewhere: in the libraries of gradients, or
// with sanitizers in forms.cpp.
#pragma once

#include <sympow/attention/compiled_gradients.hpp>

#include <sympow/sympow.hpp>

#define SYMPOW_TESTED_GRADIENTS(LINKAGE)                                           \
  SYMPOW_GRADIENTS(LINKAGE, double, sympow::Linear)                                \
  SYMPOW_GRADIENTS(LINKAGE, double, sympow::SymmetricPower<2>)                     \
  SYMPOW_GRADIENTS(LINKAGE, double, sympow::SymmetricPower<3>)                     \
  SYMPOW_BACKWARD_PASSES(LINKAGE, double, sympow::detail::PowerFeature<double>)    \
  SYMPOW_BACKWARD_PASSES(LINKAGE, double, sympow::detail::EmbeddedFeature<double>) \
  SYMPOW_BACKWARD_PASSES(LINKAGE, float, sympow::detail::PowerFeature<float>)      \
  SYMPOW_GRADIENTS(LINKAGE, float, sympow::Linear)                                 \
  SYMPOW_GRADIENTS(LINKAGE, float, sympow::SymmetricPower<2>)                      \
  SYMPOW_GRADIENTS(LINKAGE, float, sympow::SymmetricPower<4>)                      \
  SYMPOW_GRADIENTS(LINKAGE, float, sympow::SymmetricPower<8>)                      \
  SYMPOW_BACKWARD_PASSES(LINKAGE, double, sympow::Exponential)                     \
  SYMPOW_BACKWARD_PASSES(LINKAGE, float, sympow::Exponential)                      \
  SYMPOW_GRADIENTS(LINKAGE, double, sympow::Exponential)                           \
  SYMPOW_GRADIENTS(LINKAGE, float, sympow::Exponential)

SYMPOW_TESTED_GRADIENTS(extern)
