// The attention form: every query against every earlier key, O(T²).
#pragma once

#include <sympow/attention/call_checks.hpp>
#include <sympow/attention/compiled_forms.hpp>
#include <sympow/attention/output.hpp>
#include <sympow/attention/tape.hpp>
#include <sympow/attention/workspace.hpp>
#include <sympow/detail/factored_transition.hpp>
#include <sympow/detail/forms.hpp>

namespace SYMPOW_NAMESPACE {
namespace detail {

/// Runs the attention form and keeps its rows.
template <class S, class F>
void record_attention(const F& feature, ForwardCall<S> call, Tape<S, F>& tape) {
  TapeContent<S, F>& kept = TapeAccess::begin(tape);
  kept.sums.resize(static_cast<std::size_t>(call.Y.cols()));
  resize_safely(kept.Y, call.Y.rows(), call.Y.cols());
  call.sums = kept.sums.data();
  AttentionForm<S, F>::run(feature, call);
  kept.Y = call.Y;
  kept.kind = call.rows, kept.scale = call.options.scale, kept.mask = call.options.mask;
  kept.form = Form::attention;
}

/// Checks a call of the attention form and runs it.
template <class F, class A, class S>
void run_attention(RowKind kind, const F& feature, const A& transition, const ConstBatch<S>& Q, const ConstBatch<S>& K,
                   const ConstBatch<S>& V, const std::type_identity_t<Output<S, Tape<S, F>>>& output,
                   std::type_identity_t<OptionalRef<Workspace<S>>> workspace, const Options& options) {
  if (!workspace) {
    Workspace<S> own;
    return run_attention(kind, feature, transition, Q, K, V, output, own, options);
  }
  Batch<S> Y = output.rows();
  const MatrixView<const S> queries(Q), keys(K), values(V);
  check_call(transition, queries, keys, values, options);
  check_output(Y, queries, keys, values);
  if (options.diagnostics != nullptr) reset(*options.diagnostics, Q.cols());
  const FactoredTransition<S, F, A> factored(transition);
  const ForwardCall<S> call{factored.view(), kind, options, queries, keys, values, Y, memory_of(*workspace)};
  if (output.tape())
    record_attention(feature, call, *output.tape());
  else
    AttentionForm<S, F>::run(feature, call);
}

}  // namespace detail

/// Attention, the definition, causal unless `Options::mask` says otherwise.
///
///     y_i = Σ_{j ≤ i} s_ij v_j  (/ Σ_{j ≤ i} s_ij),   s_ij = κ(scale · q_iᵀ M_ij k_j) b_ij
///
/// Shapes: Q, K: d × T, V and Y: e × T, one token a column; under another mask Q and Y may have another number of
/// columns than K and V. Y shares no memory with the inputs. κ is the feature map's, M and b the transition's.
/// Normalized or not by the feature map; `attention<Unnormalized>(…)` says otherwise. A row without weight (q = 0, all
/// scores zero) is 0. `{Y, tape}` in the place of Y fills a `Tape` for `attention_vjp`; Y is the same, bit for bit.
/// Cost: T² (d + e) + O(T²) operations, O(T (d + e)) memory. No product or exponential overflows on the way to a
/// normalized row. Throws `ShapeMismatch`, `InvalidArgument` before anything is touched. Source: Conformal
/// Transformations, §2 (sympow) to §3.3.
template <class Normalization = DefaultNormalization, FeatureMap F, Transition A, class DQ, class DK, class DV>
void attention(const F& feature, const A& transition, const Eigen::MatrixBase<DQ>& Q, const Eigen::MatrixBase<DK>& K,
               const Eigen::MatrixBase<DV>& V,
               const std::type_identity_t<Output<typename DQ::Scalar, Tape<typename DQ::Scalar, F>>>& output,
               OptionalRef<Workspace<typename DQ::Scalar>> workspace = {}, const Options& options = {}) {
  using Scalar = typename DQ::Scalar;
  constexpr detail::RowKind kind = detail::row_kind<Normalization, F>();
  if constexpr (detail::check_types<F, A, DQ, DK, DV>())
    detail::run_attention(kind, feature, transition, ConstBatch<Scalar>(Q.derived()), ConstBatch<Scalar>(K.derived()),
                          ConstBatch<Scalar>(V.derived()), output, workspace, options);
}

/// The same, returning Y.
template <class Normalization = DefaultNormalization, FeatureMap F, Transition A, class DQ, class DK, class DV>
[[nodiscard]] Matrix<typename DQ::Scalar> attention(const F& feature, const A& transition,
                                                    const Eigen::MatrixBase<DQ>& Q, const Eigen::MatrixBase<DK>& K,
                                                    const Eigen::MatrixBase<DV>& V, const Options& options = {}) {
  Matrix<typename DQ::Scalar> Y(V.rows(), Q.cols());
  attention<Normalization>(feature, transition, Q, K, V, Y, {}, options);
  return Y;
}

}  // namespace SYMPOW_NAMESPACE
