// The recurrent form: one token after the other, O(T).
#pragma once

#include <sympow/attention/state_form.hpp>

namespace SYMPOW_NAMESPACE {

/// The recurrence, writing the outputs of T tokens and leaving the state ready for the next; the literal one of the
/// papers with a state that has no tail.
///
///     S_i = S_{i-1} A_i + v_i φ(k_i)ᵀ,   Z_i = Z_{i-1} A_i + φ(k_i)ᵀ,   y_i = S_i φ(q_i)  (/ Z_i φ(q_i))
///
/// Shapes: Q, K: d × T, V and Y: e × T, one token a column; the state carries what came before. Equal to `attention`
/// over the whole sequence by the row rule. Y may not overlap the inputs. Cost: 4 D (e + 1) operations and two
/// embeddings a token, 5 D (e + 1) without a tail; memory D. Throws `ShapeMismatch`, `FeatureMismatch`,
/// `FrameMismatch`, `InterruptedState`, `InvalidArgument` before anything is touched. Source: Conformal
/// Transformations, §2 and eq. (2).
template <class Normalization = DefaultNormalization, FeatureMap F, Transition A, class DQ, class DK, class DV>
void recurrent(const F& feature, const A& transition, const Eigen::MatrixBase<DQ>& Q, const Eigen::MatrixBase<DK>& K,
               const Eigen::MatrixBase<DV>& V, State<typename DQ::Scalar, F>& state, Batch<typename DQ::Scalar> Y,
               Workspace<typename DQ::Scalar>& workspace, const Options& options = {}) {
  detail::run_state_form<Normalization, F>(
      feature, transition, Q, K, V, state, Y, workspace, options,
      [&](const auto& call) { detail::StateForms<typename DQ::Scalar, F>::recurrent(feature, call); });
}

/// The same, returning Y.
template <class Normalization = DefaultNormalization, FeatureMap F, Transition A, class DQ, class DK, class DV>
[[nodiscard]] Matrix<typename DQ::Scalar> recurrent(const F& feature, const A& transition,
                                                    const Eigen::MatrixBase<DQ>& Q, const Eigen::MatrixBase<DK>& K,
                                                    const Eigen::MatrixBase<DV>& V,
                                                    State<typename DQ::Scalar, F>& state, const Options& options = {}) {
  return detail::returned(Q, V, [&](auto Y, auto& workspace) {
    recurrent<Normalization>(feature, transition, Q, K, V, state, Y, workspace, options);
  });
}

/// The same from an empty state, which is dropped.
template <class Normalization = DefaultNormalization, FeatureMap F, Transition A, class DQ, class DK, class DV>
[[nodiscard]] Matrix<typename DQ::Scalar> recurrent(const F& feature, const A& transition,
                                                    const Eigen::MatrixBase<DQ>& Q, const Eigen::MatrixBase<DK>& K,
                                                    const Eigen::MatrixBase<DV>& V, const Options& options = {}) {
  return detail::from_empty_state(feature, Q, V, [&](auto& state) {
    return recurrent<Normalization>(feature, transition, Q, K, V, state, options);
  });
}

/// What is no call of it, with a sentence why.
template <class Normalization = DefaultNormalization, class F, Transition A, class... Arguments>
  requires detail::Mistaken<F, 4, Arguments...>
auto recurrent(const F&, const A&, Arguments&&...) {
  return detail::Mistakes<F, 4, Arguments...>::explain();
}

}  // namespace SYMPOW_NAMESPACE

#ifdef SYMPOW_COMPILED_FORMS
#include <sympow/attention/compiled_forms.hpp>  // what is not compiled here
#endif
