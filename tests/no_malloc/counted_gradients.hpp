// The gradients of programs that count requests for memory, or make them fail, compiled in gradients.cpp. Before any
// other header of Eigen's.
#pragma once

#include "counted_forms.hpp"

#include <sympow/attention/batch_vjp.hpp>
#include <sympow/attention/gradients.hpp>

#define COUNTED_GRADIENTS(LINKAGE)                             \
  SYMPOW_GRADIENTS(LINKAGE, float, sympow::Linear)             \
  SYMPOW_GRADIENTS(LINKAGE, float, sympow::SymmetricPower<2>)  \
  SYMPOW_GRADIENTS(LINKAGE, double, sympow::SymmetricPower<3>) \
  SYMPOW_GRADIENTS(LINKAGE, float, sympow::Exponential)

COUNTED_GRADIENTS(extern)
