// The forms of a program that counts requests for memory, compiled in forms.cpp. Before any other header of Eigen's.
#pragma once

#include "requests.hpp"

#include <sympow/attention/compiled_forms.hpp>

/// elu(x) + 1.
struct EluPlusOne {
  static constexpr sympow::Score score = sympow::Score::embedded;
  static constexpr bool nonnegative = true;
  [[nodiscard]] sympow::Index dimension(sympow::Index d) const { return d; }
  template <class X, class Y>
  void embed(const X& x, Y&& y) const {
    y = (x.array() > 0).select(x.array() + 1, x.array().min(0).exp());
  }
};

#define COUNTED_FORMS(FORMS)                        \
  FORMS(double, sympow::Linear)                     \
  FORMS(double, sympow::SymmetricPower<2>)          \
  FORMS(double, sympow::SymmetricPower<4>)          \
  FORMS(double, EluPlusOne)                         \
  FORMS(double, sympow::PositiveRandomFeatures)     \
  FORMS(float, sympow::SymmetricPower<2>)           \
  FORMS(float, sympow::SymmetricPower<3>)           \
  FORMS(float, sympow::TrigonometricRandomFeatures) \
  FORMS(float, sympow::HyperbolicRandomFeatures)

COUNTED_FORMS(SYMPOW_EXTERN_FORMS)
