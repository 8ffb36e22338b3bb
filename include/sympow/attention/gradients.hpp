// The gradients of a call.
#pragma once

#include <sympow/transition/transport_vjp.hpp>

namespace SYMPOW_NAMESPACE {

/// Gradients of a loss in all that a call was made of, from dY = ∂loss/∂Y: what `attention_vjp` and `chunked_vjp` give.
template <class Scalar, class A>
struct Gradients {
  Matrix<Scalar> Q = {},                                 ///< dQ, d × T
      K = {},                                            ///< dK, d × T
      V = {};                                            ///< dV, e × T
  typename detail::GradientOf<A>::type transition = {};  ///< in the transition's parameters, see there
  double scale = 0;                                      ///< in `Options::scale`
};

}  // namespace SYMPOW_NAMESPACE
