// The three forms of one function: attention over all pairs, O(T²); chunked, with the state between chunks, O(T);
// recurrent, one token after the other, O(T).
#pragma once

#include <sympow/attention/compiled_forms.hpp>

namespace SYMPOW_NAMESPACE {
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
  const OptionalRef<typename detail::StateOf<Scalar, F>::type> no_state;
  if constexpr (detail::check_types<F, A, DQ, DK, DV>())
    detail::call_form<Form::attention, Scalar>(kind, feature, transition, Q.derived(), K.derived(), V.derived(),
                                               no_state, OptionalRef(output), workspace, options);
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

/// The chunked form, writing the outputs of T tokens and leaving the state ready for the next.
///
///     y_i = (b(start, i) S φ(q̃_i) + Σ_{j ≤ i in the chunk} s_ij v_j)  (/ the same with v = 1)
///
/// Shapes: Q, K: d × T, V and Y: e × T, one token a column; the state carries what came before; `Options::chunk` sets
/// the chunk c. Equal to `attention` and `recurrent` by the row rule, whatever the chunk. Under `full()` there may be
/// another number of queries, which stand from the first key on, and the state goes on by the keys' tokens. Y shares no
/// memory with the inputs. `{Y, tape}` in the place of Y fills a `Tape` for `chunked_vjp`; Y is the same, bit for
/// bit. Cost: T (4 D (e + 1) + c (d + e)) operations and two embeddings a token; memory 2 c D. Throws `ShapeMismatch`,
/// `FeatureMismatch`, `FrameMismatch`, `InterruptedState`, `InvalidArgument` before anything is touched. Source:
/// Symmetric Power Transformers, §1; Conformal Transformations, §3.
template <class Normalization = DefaultNormalization, FeatureMap F, Transition A, class DQ, class DK, class DV, class S,
          class G>
void chunked(const F& feature, const A& transition, const Eigen::MatrixBase<DQ>& Q, const Eigen::MatrixBase<DK>& K,
             const Eigen::MatrixBase<DV>& V, State<S, G>& state,
             const std::type_identity_t<Output<S, Tape<S, G>>>& output,
             std::type_identity_t<OptionalRef<Workspace<S>>> workspace = {}, const Options& options = {}) {
  constexpr detail::RowKind kind = detail::row_kind<Normalization, F>();
  if constexpr (detail::check_state_form<F, A, DQ, DK, DV, S, G>())
    detail::call_form<Form::chunked, S>(kind, feature, transition, Q.derived(), K.derived(), V.derived(),
                                        OptionalRef(state), OptionalRef(output), workspace, options);
}

/// The same, returning Y.
template <class Normalization = DefaultNormalization, FeatureMap F, Transition A, class DQ, class DK, class DV, class S,
          class G>
[[nodiscard]] Matrix<S> chunked(const F& feature, const A& transition, const Eigen::MatrixBase<DQ>& Q,
                                const Eigen::MatrixBase<DK>& K, const Eigen::MatrixBase<DV>& V, State<S, G>& state,
                                const Options& options = {}) {
  Matrix<S> Y(V.rows(), Q.cols());
  chunked<Normalization>(feature, transition, Q, K, V, state, Y, {}, options);
  return Y;
}

/// The same from an empty state, which is dropped.
template <class Normalization = DefaultNormalization, FeatureMap F, Transition A, class DQ, class DK, class DV>
[[nodiscard]] Matrix<typename DQ::Scalar> chunked(const F& feature, const A& transition, const Eigen::MatrixBase<DQ>& Q,
                                                  const Eigen::MatrixBase<DK>& K, const Eigen::MatrixBase<DV>& V,
                                                  const Options& options = {}) {
  if constexpr (detail::check_moves<F, A>()) {
    State<typename DQ::Scalar, F> state(feature, Q.rows(), V.rows());
    state.drop_key_product();
    return chunked<Normalization>(feature, transition, Q, K, V, state, options);
  } else {
    return {};
  }
}

/// Takes tokens into a state without reading it: `chunked` without queries, at less than half its cost.
///
///     S ← S A_1 … A_T + Σ_j b_Tj v_j φ(k̃_j)ᵀ
///
/// Shapes: K: d × T, V: e × T, one token a column. Cost: T 2 D (e + 1) operations and an embedding a token. Throws as
/// `chunked` does, before anything is touched.
template <FeatureMap F, Transition A, class DK, class DV, class S, class G>
void absorb(const F& feature, const A& transition, const Eigen::MatrixBase<DK>& K, const Eigen::MatrixBase<DV>& V,
            State<S, G>& state, std::type_identity_t<OptionalRef<Workspace<S>>> workspace = {},
            const Options& options = {}) {
  if constexpr (detail::check_state_form<F, A, DK, DK, DV, S, G>())
    detail::call_form<Form::chunked, S>(detail::RowKind::sums, feature, transition, K.derived(), K.derived(),
                                        V.derived(), OptionalRef(state), {}, workspace, options);
}

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
  constexpr detail::RowKind kind = detail::row_kind<Normalization, F>();
  if constexpr (detail::check_state_form<F, A, DQ, DK, DV, S, G>())
    detail::call_form<Form::recurrent, S>(kind, feature, transition, Q.derived(), K.derived(), V.derived(),
                                          OptionalRef(state), OptionalRef(output), workspace, options);
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
