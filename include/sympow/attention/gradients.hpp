// Gradients of the attention form, O(T²), and of the chunked form, O(T).
#pragma once

#include <sympow/attention/compiled_gradients.hpp>

namespace SYMPOW_NAMESPACE {

/// The arguments of `attention_vjp` and `chunked_vjp` by name. Shapes: Q, K: d × T, V and dY: e × T, one token a
/// column; under another mask than `causal()` Q and dY may have another number of columns than K and V.
template <class Scalar, FeatureMap F, Transition A>
struct VjpCall {
  ConstBatch<Scalar> Q, K, V, dY;
  /// Of `chunked_vjp`: the state before the first token, an empty one if it is left out.
  OptionalRef<const typename detail::StateOf<Scalar, F>::type> state = {};
  OptionalRef<const Tape<Scalar, F>> tape = {};  ///< that the form has filled; begins with the state of `chunked`
  /// Of `chunked_vjp`: the gradient of the state after the last token, and then that of the state before the first. 0
  /// if it is left out.
  OptionalRef<typename detail::StateOf<Scalar, F>::gradient> d_state = {};
  OptionalRef<Gradients<Scalar, A>> reuse = {};      ///< gradients whose memory those returned take over
  OptionalRef<VjpWorkspace<Scalar>> workspace = {};  ///< scratch; the call makes its own if it is left out
  Options options = {};
};

namespace detail {

/// Whether these types have gradients in a form; false after a sentence.
template <Form form, class Scalar, FeatureMap F, Transition A>
constexpr bool check_vjp_types() {
  if constexpr (!check_types<F, A, Matrix<Scalar>, Matrix<Scalar>, Matrix<Scalar>>())
    return false;
  else if constexpr (form == Form::attention)
    return check_vjp<F, A, Scalar, true>();
  else
    return check_moves<F, A>() && check_vjp<F, A, Scalar>();
}

/// Checks a call, then computes its gradients, in the memory of others if it is given.
template <Form form, class Scalar, class F, class A>
Gradients<Scalar, A> gradients_of(RowKind kind, const F& feature, const A& transition,
                                  const VjpCall<Scalar, F, A>& call) {
  Gradients<Scalar, A> gradients;
  if constexpr (check_vjp_types<form, Scalar, F, A>()) {
    if (form == Form::attention && (call.state || call.d_state))
      raise<InvalidArgument>("attention_vjp: a state or its gradient is given; the attention form has none");
    if (call.state && call.tape)
      raise<InvalidArgument>(
          "chunked_vjp: a state and a tape are given, must be one of them: a tape begins with a state");
    using Calls = GradientCalls<Scalar, InterfaceOf<Scalar, F>>;
    const auto& of_passes = pass_feature<Scalar>(feature);
    VjpViewOf<Scalar, A> view(transition, gradients.transition);
    const VjpInputs<Scalar> x{{kind, &view.transition(), call.Q, call.K, call.V, call.options},
                              view,
                              call.dY,
                              StateAccess::given(call.state),
                              StateAccess::given(call.tape),
                              StateAccess::given(call.d_state)};
    Calls::check(form, of_passes, x);
    if (call.reuse) {
      const auto& [Q, K, V, of_transition, scale] = *call.reuse;
      check_outputs(
          {{"dQ", layout_of(Q)}, {"dK", layout_of(K)}, {"dV", layout_of(V)}},
          {{"Q", layout_of(call.Q)}, {"K", layout_of(call.K)}, {"V", layout_of(call.V)}, {"dY", layout_of(call.dY)}});
      gradients = std::move(*call.reuse);
    }
    gradients.transition = transition.zero_gradient(x.call.tokens());
    constexpr bool adds = form == Form::attention;
    const auto begin = [](Matrix<Scalar>& to, const auto& of) {
      resize_safely(to, of.rows(), of.cols());
      if (adds) to.setZero();
    };
    begin(gradients.Q, call.Q), begin(gradients.K, call.K), begin(gradients.V, call.V);
    gradients.scale = 0;
    VjpWorkspace<Scalar> own;
    Calls::run(form, of_passes, x, {gradients.Q, gradients.K, gradients.V, gradients.scale, adds},
               call.workspace ? *call.workspace : own);
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
/// and for a tape that is empty or of another shape, feature map, normalization, scale or mask. Source: reverse mode of
/// the definition, the normalizer's part by y_i·dy_i.
template <class Normalization = DefaultNormalization, FeatureMap F, Transition A>
[[nodiscard]] Gradients<float, A> attention_vjp(const F& feature, const A& transition,
                                                const VjpCall<float, F, A>& call) {
  return detail::gradients_of<Form::attention>(detail::row_kind<Normalization, F>(), feature, transition, call);
}
/// Overload for double.
template <class Normalization = DefaultNormalization, FeatureMap F, Transition A>
[[nodiscard]] Gradients<double, A> attention_vjp(const F& feature, const A& transition,
                                                 const VjpCall<double, F, A>& call) {
  return detail::gradients_of<Form::attention>(detail::row_kind<Normalization, F>(), feature, transition, call);
}

/// The gradients of `chunked`, from the state before the first token and dY = ∂loss/∂Y.
///
///     dQ, dK, dV and those of the transition and of the scale, of Σ_i dy_i·y_i and what `d_state` says of the state
///
///     const auto g = chunked_vjp(feature, transition, {.Q = Q, .K = K, .V = V, .dY = dY, .tape = tape});
///
/// A row without weight has no gradient, and its dy changes nothing. Rows and normalizers of the forward pass are not
/// needed. Cost: four products of D (e + 1) a token, and a fifth for the part (k - 1)/k of states that is recomputed,
/// k = `Options::checkpoint`; memory: a state every k chunks and k more. The same bits for every k. With `.tape`, which
/// `chunked` has filled, only states between its own are recomputed. Under `full()`: five products, and one state.
/// Throws as `chunked` does, before anything is touched. Source: reverse mode by chunks.
template <class Normalization = DefaultNormalization, FeatureMap F, Transition A>
[[nodiscard]] Gradients<float, A> chunked_vjp(const F& feature, const A& transition, const VjpCall<float, F, A>& call) {
  return detail::gradients_of<Form::chunked>(detail::row_kind<Normalization, F>(), feature, transition, call);
}
/// Overload for double.
template <class Normalization = DefaultNormalization, FeatureMap F, Transition A>
[[nodiscard]] Gradients<double, A> chunked_vjp(const F& feature, const A& transition,
                                               const VjpCall<double, F, A>& call) {
  return detail::gradients_of<Form::chunked>(detail::row_kind<Normalization, F>(), feature, transition, call);
}

}  // namespace SYMPOW_NAMESPACE
