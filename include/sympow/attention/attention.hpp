// The attention form: every query against every earlier key, O(T²).
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
  if constexpr (detail::check_types<F, A, DQ, DK, DV>())
    detail::FormCalls<Scalar, F>::attention(
        {kind, feature, detail::ViewOf<Scalar, A>(transition), Q.derived(), K.derived(), V.derived(), options}, output,
        workspace);
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
