// The gradients of a program that counts requests for memory, compiled in gradients.cpp. Before any other header of
// Eigen's.
#pragma once

#include "counted_forms.hpp"

#include <sympow/attention/compiled_gradients.hpp>

#define COUNTED_GRADIENTS(GRADIENTS)           \
  GRADIENTS(double, sympow::Linear)            \
  GRADIENTS(double, sympow::SymmetricPower<2>) \
  GRADIENTS(float, sympow::SymmetricPower<3>)

COUNTED_GRADIENTS(SYMPOW_EXTERN_GRADIENTS)
