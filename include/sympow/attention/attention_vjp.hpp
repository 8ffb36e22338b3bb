// Gradients of the attention form, O(T²).
#pragma once

#include <sympow/attention/gradient/attention_adjoint.hpp>
#include <sympow/attention/gradient/vjp_checks.hpp>
#include <sympow/attention/vjp_workspace.hpp>

namespace SYMPOW_NAMESPACE {

/// The gradients of `attention`, from dY = ∂loss/∂Y.
///
///     dQ, dK, dV and those of the transition and of the scale, of Σ_i dy_i·y_i
///
/// Shapes: as of `attention`; dY: e × T, as Y. A row without weight has no gradient, and its dy changes nothing. Rows
/// and normalisers of the forward pass are not needed. Cost: T² (3 d + 2 e) + O(T²) operations under a causal mask, O(T
/// (d + e)) memory. Throws `ShapeMismatch`, `InvalidArgument` before anything is touched. Source: reverse mode of the
/// definition, the normaliser's part by Σ_j s_ij v_j·dy_i.
template <class Normalization = DefaultNormalization, FeatureMap F, Transition A, class DQ, class DK, class DV, class DY>
void attention_vjp(const F& feature, const A& transition, const Eigen::MatrixBase<DQ>& Q,
                   const Eigen::MatrixBase<DK>& K, const Eigen::MatrixBase<DV>& V, const Eigen::MatrixBase<DY>& dY,
                   Gradients<typename DQ::Scalar, A>& gradients, VjpWorkspace<typename DQ::Scalar>& workspace,
                   const Options& options = {}) {
  using Scalar = typename DQ::Scalar;
  if constexpr (detail::check_types<F, A, DQ, DK, DV>() && detail::check_vjp<F, A, Scalar>()) {
    const ConstBatch<Scalar> queries(Q.derived()), keys(K.derived()), values(V.derived()), d_rows(dY.derived());
    detail::check_call(transition, queries, keys, values, options);
    detail::check_d_rows(d_rows, queries, values);
    detail::begin_gradients(gradients, transition, queries, keys, values,
                            detail::tokens_of(queries, keys, options.mask));
    const detail::ViewOf<Scalar, A> view(transition);
    detail::VjpViewOf<Scalar, A> vjp(transition, gradients.transition);
    detail::AttentionVjp<Scalar, F>::run(
        feature, {view, vjp, detail::row_kind<Normalization, F>(), options, queries, keys, values, d_rows, gradients.Q,
                  gradients.K, gradients.V, gradients.scale, detail::memory_of(workspace),
                  detail::adjoint_memory_of(workspace)});
  }
}

/// The same, returning the gradients.
template <class Normalization = DefaultNormalization, FeatureMap F, Transition A, class DQ, class DK, class DV, class DY>
[[nodiscard]] Gradients<typename DQ::Scalar, A> attention_vjp(const F& feature, const A& transition,
                                                              const Eigen::MatrixBase<DQ>& Q,
                                                              const Eigen::MatrixBase<DK>& K,
                                                              const Eigen::MatrixBase<DV>& V,
                                                              const Eigen::MatrixBase<DY>& dY,
                                                              const Options& options = {}) {
  Gradients<typename DQ::Scalar, A> gradients;
  VjpWorkspace<typename DQ::Scalar> workspace;
  attention_vjp<Normalization>(feature, transition, Q, K, V, dY, gradients, workspace, options);
  return gradients;
}

}  // namespace SYMPOW_NAMESPACE
