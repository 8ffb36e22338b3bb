// The recurrent form: one token after the other, O(T).
#pragma once

#include <sympow/attention/compiled_forms.hpp>

namespace SYMPOW_NAMESPACE {

/// The recurrence, writing the outputs of T tokens and leaving the state ready for the next; the literal one of the
/// papers with a state that has no tail.
///
///     S_i = S_{i-1} A_i + v_i φ(k_i)ᵀ,   Z_i = Z_{i-1} A_i + φ(k_i)ᵀ,   y_i = S_i φ(q_i)  (/ Z_i φ(q_i))
///
/// Shapes: Q, K: d × T, V and Y: e × T, one token a column; the state carries what came before. Equal to `attention`
/// over the whole sequence by the row rule. Y shares no memory with the inputs. Cost: 4 D (e + 1) operations and two
/// embeddings a token, 5 D (e + 1) without a tail; memory D. Throws `ShapeMismatch`, `FeatureMismatch`,
/// `FrameMismatch`, `InterruptedState`, `InvalidArgument` before anything is touched. Source: Conformal
/// Transformations, §2 and eq. (2).
template <class Normalization = DefaultNormalization, FeatureMap F, Transition A, class DQ, class DK, class DV, class S,
          class G>
void recurrent(const F& feature, const A& transition, const Eigen::MatrixBase<DQ>& Q, const Eigen::MatrixBase<DK>& K,
               const Eigen::MatrixBase<DV>& V, State<S, G>& state, const std::type_identity_t<Output<S>>& output,
               std::type_identity_t<OptionalRef<Workspace<S>>> workspace = {}, const Options& options = {}) {
  Batch<S> Y = output.rows();
  constexpr detail::RowKind kind = detail::row_kind<Normalization, F>();
  if constexpr (detail::check_state_form<F, A, DQ, DK, DV, S, G>())
    detail::FormCalls<S, F>::from_state(
        Form::recurrent,
        {kind, feature, detail::ViewOf<S, A>(transition), Q.derived(), K.derived(), V.derived(), options}, state, Y,
        workspace);
}

/// The same, returning Y.
template <class Normalization = DefaultNormalization, FeatureMap F, Transition A, class DQ, class DK, class DV, class S,
          class G>
[[nodiscard]] Matrix<S> recurrent(const F& feature, const A& transition, const Eigen::MatrixBase<DQ>& Q,
                                  const Eigen::MatrixBase<DK>& K, const Eigen::MatrixBase<DV>& V, State<S, G>& state,
                                  const Options& options = {}) {
  Matrix<S> Y(V.rows(), Q.cols());
  recurrent<Normalization>(feature, transition, Q, K, V, state, Y, {}, options);
  return Y;
}

}  // namespace SYMPOW_NAMESPACE
