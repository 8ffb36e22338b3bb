// The gradients of a call.
#pragma once

#include <sympow/transition/product.hpp>

namespace SYMPOW_NAMESPACE {

/// Gradients of a loss in everything that a call was made of, from dY = ∂loss/∂Y: what `attention_vjp` and
/// `chunked_vjp` return.
template <class Scalar, class A>
struct Gradients {
  Matrix<Scalar> Q = {},                                 ///< dQ, d × T
      K = {},                                            ///< dK, d × T
      V = {};                                            ///< dV, e × T
  typename detail::GradientOf<A>::type transition = {};  ///< in the transition's parameters, see there
  double scale = 0;                                      ///< in `Options::scale`

  /// In the parameters of a factor of the transition, or of the transition itself: `of<Decay>().log_gamma`.
  template <class Factor>
  [[nodiscard]] const auto& of() const {
    return detail::gradient_of<Factor, A>(transition);
  }
};

}  // namespace SYMPOW_NAMESPACE
