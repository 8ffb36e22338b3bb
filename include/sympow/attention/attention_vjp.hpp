// Gradients of the attention form, O(T²).
#pragma once

#include <sympow/attention/compiled_gradients.hpp>

namespace SYMPOW_NAMESPACE {

/// The arguments of `attention_vjp` by name. Shapes: Q, K: d × T, V and dY: e × T, one token a column.
template <class Scalar, FeatureMap F, Transition A>
struct AttentionVjpCall {
  ConstBatch<Scalar> Q, K, V, dY;
  OptionalRef<const Tape<Scalar, F>> tape = {};      ///< that `attention` has filled
  OptionalRef<Gradients<Scalar, A>> reuse = {};      ///< gradients whose memory those returned take over
  OptionalRef<VjpWorkspace<Scalar>> workspace = {};  ///< scratch; the call makes its own if it is left out
  Options options = {};
};

namespace detail {

/// Checks a call and computes its gradients.
template <class Scalar, class F, class A>
Gradients<Scalar, A> attention_gradients(RowKind kind, const F& feature, const A& transition,
                                         const AttentionVjpCall<Scalar, F, A>& call) {
  Gradients<Scalar, A> gradients;
  if constexpr (check_types<F, A, Matrix<Scalar>, Matrix<Scalar>, Matrix<Scalar>>() &&
                check_vjp<F, A, Scalar, true>()) {
    using Calls = GradientCalls<Scalar, F>;
    const VjpArguments<Scalar> x{call.Q, call.K, call.V, call.dY};
    VjpTransitionOf<Scalar, A> of_call(transition, gradients.transition);
    const SavedRows<Scalar> rows = Calls::check_attention(kind, of_call, x, call.tape, call.options);
    VjpWorkspace<Scalar> own;
    gradients = take_memory(call.reuse, x);
    const auto to = begin_gradients(gradients, transition, x, call.options, true);
    Calls::attention(kind, feature, of_call, x, to, call.workspace ? *call.workspace : own, call.options, rows);
  }
  return gradients;
}

}  // namespace detail

/// The gradients of `attention`, from dY = ∂loss/∂Y.
///
///     dQ, dK, dV and those of the transition and of the scale, of Σ_i dy_i·y_i
///
///     const auto g = attention_vjp(feature, transition, {.Q = Q, .K = K, .V = V, .dY = dY});
///
/// A row without weight has no gradient, and its dy changes nothing. With `.tape`, which `attention` has filled, the
/// forward pass is not computed again: the same bits. Cost: T² (3 d + 2 e) + O(T²) operations under a causal mask, and
/// without a tape those of `attention`; O(T (d + e)) memory. Throws as `attention` does, before anything is touched,
/// and for a tape that is empty or of another shape, normalization, scale or mask. Source: reverse mode of the
/// definition, the normalizer's part by y_i·dy_i.
template <class Normalization = DefaultNormalization, FeatureMap F, Transition A>
[[nodiscard]] Gradients<float, A> attention_vjp(const F& feature, const A& transition,
                                                const AttentionVjpCall<float, F, A>& call) {
  return detail::attention_gradients(detail::row_kind<Normalization, F>(), feature, transition, call);
}
/// Overload for double.
template <class Normalization = DefaultNormalization, FeatureMap F, Transition A>
[[nodiscard]] Gradients<double, A> attention_vjp(const F& feature, const A& transition,
                                                 const AttentionVjpCall<double, F, A>& call) {
  return detail::attention_gradients(detail::row_kind<Normalization, F>(), feature, transition, call);
}

}  // namespace SYMPOW_NAMESPACE
