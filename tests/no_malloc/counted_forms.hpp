// The forms of programs that count requests for memory, or make them fail, compiled in forms.cpp. Before any other
// header of Eigen's.
#pragma once

#include "requests.hpp"

#include <sympow/attention/compiled_forms.hpp>

#define COUNTED_FORMS(LINKAGE)                                         \
  SYMPOW_FORMS(LINKAGE, float, sympow::Linear)                         \
  SYMPOW_FORMS(LINKAGE, float, sympow::SymmetricPower<2>)              \
  SYMPOW_FORMS(LINKAGE, float, sympow::Exponential)                    \
  SYMPOW_FORMS(LINKAGE, double, sympow::SymmetricPower<3>)             \
  SYMPOW_PASSES(LINKAGE, float, sympow::Exponential)                   \
  SYMPOW_PASSES(LINKAGE, float, sympow::detail::PowerFeature<float>)   \
  SYMPOW_PASSES(LINKAGE, double, sympow::detail::PowerFeature<double>) \
  SYMPOW_PASSES(LINKAGE, float, sympow::detail::EmbeddedFeature<float>)

COUNTED_FORMS(extern)
