// The recurrent form of a sequence before which there is nothing.
#pragma once

#include <sympow/attention/forms.hpp>

namespace sympow::test {

/// Y of `recurrent` from an empty state, which is dropped.
template <class Normalization = DefaultNormalization, class F, class A, class DQ, class DK, class DV>
[[nodiscard]] Matrix<typename DQ::Scalar> recurrent_from_nothing(const F& feature, const A& transition,
                                                                 const Eigen::MatrixBase<DQ>& Q,
                                                                 const Eigen::MatrixBase<DK>& K,
                                                                 const Eigen::MatrixBase<DV>& V,
                                                                 const Options& options = {}) {
  State<typename DQ::Scalar, F> state(feature, Q.rows(), V.rows());
  state.drop_key_product();
  return recurrent<Normalization>(feature, transition, Q, K, V, state, options);
}

}  // namespace sympow::test
