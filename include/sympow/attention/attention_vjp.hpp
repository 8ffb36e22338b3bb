// Gradients of the attention form, O(T²).
#pragma once

#include <sympow/attention/gradient/attention_adjoint.hpp>
#include <sympow/attention/gradient/vjp_call.hpp>

namespace SYMPOW_NAMESPACE {

namespace detail {

/// Takes a call back that is checked; adds to the gradients.
template <class Normalization, class F, class A, class Scalar>
void run_attention_vjp(const F& feature, const A& transition, const VjpArguments<Scalar>& arguments,
                       const VjpResults<Scalar, A>& results, VjpWorkspace<Scalar>& workspace, const Options& options) {
  const ViewOf<Scalar, A> view(transition);
  VjpViewOf<Scalar, A> vjp(transition, results.transition);
  AttentionVjp<Scalar, F>::run(feature, vjp_call<Normalization, F>(view, vjp, arguments, results, workspace, options));
}

}  // namespace detail

/// The gradients of `attention`, from dY = ∂loss/∂Y.
///
///     dQ, dK, dV and those of the transition and of the scale, of Σ_i dy_i·y_i
///
/// Shapes: as of `attention`; dY: e × T, as Y. A row without weight has no gradient, and its dy changes nothing. Rows
/// and normalisers of the forward pass are not needed. Cost: T² (3 d + 2 e) + O(T²) operations under a causal mask, O(T
/// (d + e)) memory. Throws `ShapeMismatch`, `InvalidArgument` before anything is touched. Source: reverse mode of the
/// definition, the normaliser's part by Σ_j s_ij v_j·dy_i.
template <class Normalization = DefaultNormalization, FeatureMap F, Transition A, class DQ, class DK, class DV,
          class DY>
void attention_vjp(const F& feature, const A& transition, const Eigen::MatrixBase<DQ>& Q,
                   const Eigen::MatrixBase<DK>& K, const Eigen::MatrixBase<DV>& V, const Eigen::MatrixBase<DY>& dY,
                   Gradients<typename DQ::Scalar, A>& gradients, VjpWorkspace<typename DQ::Scalar>& workspace,
                   const Options& options = {}) {
  using Scalar = typename DQ::Scalar;
  if constexpr (detail::check_types<F, A, DQ, DK, DV>() && detail::check_vjp<F, A, Scalar, true>()) {
    const ConstBatch<Scalar> queries(Q.derived()), keys(K.derived()), values(V.derived()), d_rows(dY.derived());
    const detail::VjpArguments<Scalar> arguments{queries, keys, values, d_rows};
    detail::check_vjp_call(transition, arguments, options);
    const auto results = detail::begin_gradients(gradients, transition, arguments, options, true);
    detail::run_attention_vjp<Normalization>(feature, transition, arguments, results, workspace, options);
  }
}

/// The same, returning the gradients.
template <class Normalization = DefaultNormalization, FeatureMap F, Transition A, class DQ, class DK, class DV,
          class DY>
[[nodiscard]] Gradients<typename DQ::Scalar, A> attention_vjp(
    const F& feature, const A& transition, const Eigen::MatrixBase<DQ>& Q, const Eigen::MatrixBase<DK>& K,
    const Eigen::MatrixBase<DV>& V, const Eigen::MatrixBase<DY>& dY, const Options& options = {}) {
  Gradients<typename DQ::Scalar, A> gradients;
  VjpWorkspace<typename DQ::Scalar> workspace;
  attention_vjp<Normalization>(feature, transition, Q, K, V, dY, gradients, workspace, options);
  return gradients;
}

}  // namespace SYMPOW_NAMESPACE
