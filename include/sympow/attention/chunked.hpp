// The chunked form: attention inside chunks, the state between them, O(T).
#pragma once

#include <sympow/attention/state_form.hpp>

namespace SYMPOW_NAMESPACE {
/// The chunked form, writing the outputs of T tokens and leaving the state ready for the next.
///
///     y_i = (b(start, i) S φ(q̃_i) + Σ_{j ≤ i in the chunk} s_ij v_j)  (/ the same with v = 1)
///
/// Shapes: Q, K: d × T, V and Y: e × T, one token a column; the state carries what came before; `Options::chunk` sets
/// the chunk c. Equal to `attention` and `recurrent` by the row rule, whatever the chunk. Under `full()` there may be
/// another number of queries, which stand from the first key on, and the state goes on by the keys' tokens. Y may not
/// overlap the inputs. Cost: T (4 D (e + 1) + c (d + e)) operations and two embeddings a token; memory 2 c D. Throws
/// `ShapeMismatch`, `FeatureMismatch`, `FrameMismatch`, `InterruptedState`, `InvalidArgument` before anything is
/// touched. Source: Symmetric Power Transformers, §1; Conformal Transformations, §3.
template <class Normalization = DefaultNormalization, FeatureMap F, Transition A, class DQ, class DK, class DV>
void chunked(const F& feature, const A& transition, const Eigen::MatrixBase<DQ>& Q, const Eigen::MatrixBase<DK>& K,
             const Eigen::MatrixBase<DV>& V, State<typename DQ::Scalar, F>& state, Batch<typename DQ::Scalar> Y,
             Workspace<typename DQ::Scalar>& workspace, const Options& options = {}) {
  detail::run_state_form<Normalization, F>(
      feature, transition, Q, K, V, state, Y, workspace, options,
      [&](const auto& call) { detail::StateForms<typename DQ::Scalar, F>::chunked(feature, call); });
}

/// Takes tokens into a state without reading any: `chunked` without queries, at less than half its cost. Throws as it
/// does.
template <FiniteFeatureMap F, Transition A, class DK, class DV>
void absorb(const F& feature, const A& transition, const Eigen::MatrixBase<DK>& K, const Eigen::MatrixBase<DV>& V,
            State<typename DK::Scalar, F>& state, Workspace<typename DK::Scalar>& workspace,
            const Options& options = {}) {
  using Scalar = typename DK::Scalar;
  // The keys stand for queries and the values for outputs, neither of which is looked at.
  detail::run_with_state<Unnormalized>(feature, transition, K, K, V, state, Eigen::Map<Matrix<Scalar>>(nullptr, 0, 0),
                                       workspace, options, [&](detail::StateCall<Scalar> call) {
                                         call.reads = false;
                                         detail::StateForms<Scalar, F>::chunked(feature, call);
                                       });
}

/// The same, returning Y.
template <class Normalization = DefaultNormalization, FeatureMap F, Transition A, class DQ, class DK, class DV>
[[nodiscard]] Matrix<typename DQ::Scalar> chunked(const F& feature, const A& transition, const Eigen::MatrixBase<DQ>& Q,
                                                  const Eigen::MatrixBase<DK>& K, const Eigen::MatrixBase<DV>& V,
                                                  State<typename DQ::Scalar, F>& state, const Options& options = {}) {
  return detail::returned(Q, V, [&](auto Y, auto& workspace) {
    chunked<Normalization>(feature, transition, Q, K, V, state, Y, workspace, options);
  });
}

/// The same from an empty state, which is dropped.
template <class Normalization = DefaultNormalization, FeatureMap F, Transition A, class DQ, class DK, class DV>
[[nodiscard]] Matrix<typename DQ::Scalar> chunked(const F& feature, const A& transition, const Eigen::MatrixBase<DQ>& Q,
                                                  const Eigen::MatrixBase<DK>& K, const Eigen::MatrixBase<DV>& V,
                                                  const Options& options = {}) {
  return detail::from_empty_state(
      feature, Q, V, [&](auto& state) { return chunked<Normalization>(feature, transition, Q, K, V, state, options); });
}

/// What is no call of it, with a sentence why.
template <class Normalization = DefaultNormalization, class F, Transition A, class... Arguments>
  requires detail::Mistaken<F, 4, Arguments...>
auto chunked(const F&, const A&, Arguments&&...) {
  return detail::Mistakes<F, 4, Arguments...>::explain();
}

/// The same of `absorb`.
template <class F, Transition A, class... Arguments>
  requires detail::Mistaken<F, detail::no_output, Arguments...>
auto absorb(const F&, const A&, Arguments&&...) {
  return detail::Mistakes<F, detail::no_output, Arguments...>::explain();
}

}  // namespace SYMPOW_NAMESPACE

#ifdef SYMPOW_COMPILED_FORMS
#include <sympow/attention/compiled_forms.hpp>  // what is not compiled here
#endif
