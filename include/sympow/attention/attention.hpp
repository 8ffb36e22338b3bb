// The attention form: every query against every earlier key, O(T²).
#pragma once

#include <sympow/attention/engine/attention_engine.hpp>
#include <sympow/attention/engine/seen_transition.hpp>
#include <sympow/attention/mistakes.hpp>
#include <sympow/attention/workspace.hpp>

namespace SYMPOW_NAMESPACE {

namespace detail {

/// Checks a call and hands it to `engine`, a callable on `AttentionCall`. Nothing is touched if a check throws.
template <class Normalization, class F, class A, class DQ, class DK, class DV, class Engine>
void run_attention(const A& transition, const Eigen::MatrixBase<DQ>& Q, const Eigen::MatrixBase<DK>& K,
                   const Eigen::MatrixBase<DV>& V, Batch<typename DQ::Scalar> Y,
                   Workspace<typename DQ::Scalar>& workspace, const Options& options, const Engine& engine) {
  using Scalar = typename DQ::Scalar;
  constexpr RowKind rows = row_kind<Normalization, F>();
  if constexpr (check_types<F, A, DQ, DK, DV>()) {
    const ConstBatch<Scalar> queries(Q.derived()), keys(K.derived()), values(V.derived());
    check_call(transition, queries, keys, values, options);
    check_output(Y, queries, values);
    if (options.diagnostics != nullptr) resize_anew(*options.diagnostics, 3, Q.cols());
    const SeenTransition<Scalar, F, A> seen(transition);
    engine(AttentionCall<Scalar>{seen.view(), rows, options, queries, keys, values, Y, memory_of(workspace)});
  }
}

}  // namespace detail

/// Attention, the definition, causal unless `Options::mask` says otherwise.
///
///     y_i = Σ_{j ≤ i} s_ij v_j  (/ Σ_{j ≤ i} s_ij),   s_ij = κ(scale · q_iᵀ M_ij k_j) b_ij
///
/// Shapes: Q, K: d × T, V and Y: e × T, one token a column; under another mask Q and Y may have another number of
/// columns than K and V. Y may not overlap the inputs. κ is the feature map's, M and b the transition's. Normalised or
/// not by the feature map; `attention<Unnormalized>(…)` says otherwise. A row without weight (q = 0, all scores zero)
/// gives 0. Cost: T² (d + e) + O(T²) operations, O(T (d + e)) memory. No product or exponential overflows on the way to
/// a normalised row. Throws `ShapeMismatch`, `InvalidArgument`. Source: Conformal Transformations, §2 (sympow) to §3.3.
template <class Normalization = DefaultNormalization, FeatureMap F, Transition A, class DQ, class DK, class DV>
void attention(const F& feature, const A& transition, const Eigen::MatrixBase<DQ>& Q, const Eigen::MatrixBase<DK>& K,
               const Eigen::MatrixBase<DV>& V, Batch<typename DQ::Scalar> Y, Workspace<typename DQ::Scalar>& workspace,
               const Options& options = {}) {
  detail::run_attention<Normalization, F>(transition, Q, K, V, Y, workspace, options, [&](const auto& call) {
    detail::AttentionForm<typename DQ::Scalar, F>::run(feature, call);
  });
}

/// The same, returning Y.
template <class Normalization = DefaultNormalization, FeatureMap F, Transition A, class DQ, class DK, class DV>
[[nodiscard]] Matrix<typename DQ::Scalar> attention(const F& feature, const A& transition,
                                                    const Eigen::MatrixBase<DQ>& Q, const Eigen::MatrixBase<DK>& K,
                                                    const Eigen::MatrixBase<DV>& V, const Options& options = {}) {
  Matrix<typename DQ::Scalar> Y(V.rows(), Q.cols());
  Workspace<typename DQ::Scalar> workspace;
  attention<Normalization>(feature, transition, Q, K, V, Y, workspace, options);
  return Y;
}

/// What is no call of it, with a sentence why.
template <class Normalization = DefaultNormalization, class F, Transition A, class... Arguments>
  requires detail::Mistaken<F, 3, Arguments...>
auto attention(const F&, const A&, Arguments&&...) {
  return detail::Mistakes<F, 3, Arguments...>::explain();
}

}  // namespace SYMPOW_NAMESPACE

#ifdef SYMPOW_COMPILED_FORMS
#include <sympow/attention/compiled_forms.hpp>  // what is not compiled here
#endif
