// The forms of programs that count requests for memory, or make them fail, compiled in forms.cpp. Before any other
// header of Eigen's.
#pragma once

#include "requests.hpp"

#include <sympow/attention/compiled_forms.hpp>

// Embedded scores of every map are those of `EmbeddedFeature`.
#define COUNTED_FORMS(FORMS)                           \
  FORMS(float, sympow::Linear)                         \
  FORMS(float, sympow::SymmetricPower<2>)              \
  FORMS(float, sympow::Exponential)                    \
  FORMS(float, sympow::detail::EmbeddedFeature<float>) \
  FORMS(double, sympow::SymmetricPower<3>)

COUNTED_FORMS(SYMPOW_EXTERN_FORMS)
