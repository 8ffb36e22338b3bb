// Gradients of the attention form, O(T²).
#pragma once

#include <sympow/attention/compiled_gradients.hpp>
#include <sympow/attention/tape.hpp>
#include <sympow/attention/vjp_call.hpp>

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

/// The backward pass of a checked call; adds to the gradients.
template <class F, class A, class Scalar>
void run_attention_vjp(RowKind kind, const F& feature, const A& transition, const VjpArguments<Scalar>& arguments,
                       const VjpResults<Scalar, A>& results, VjpWorkspace<Scalar>& workspace, const Options& options,
                       const SavedRows<Scalar>& saved = {}) {
  VjpViews<Scalar, F, A> views(transition, results.transition);
  auto call = backward_call<F>(kind, views, arguments, results, workspace, options);
  call.saved = saved;
  AttentionVjp<Scalar, F>::run(feature, call);
}

/// The rows of a tape. Throws `InvalidArgument` or `ShapeMismatch` unless they can be those of a call.
template <class Scalar, class F>
SavedRows<Scalar> rows_of_tape(const Tape<Scalar, F>& tape, RowKind kind, const MatrixView<const Scalar>& dY,
                               const Options& options) {
  const TapeContent<Scalar, F>& kept = TapeAccess::content(tape);
  if (kept.form != Form::attention)
    raise<InvalidArgument>("attention_vjp: the tape holds no rows, must be one that attention() has filled");
  check_size("columns of dY", dY.cols(), tape.rows(), "rows of the tape");
  check_size("rows of dY", dY.rows(), kept.Y.rows(), "entries of each row of the tape");
  if (kind != kept.kind) raise<InvalidArgument>("attention_vjp: the rows of the tape were normalized in another way");
  const auto in_words = [](const Mask& mask) { return mask.is_full ? " of a full mask" : " of a causal mask"; };
  if (options.scale != kept.scale || options.mask != kept.mask)
    raise<InvalidArgument>("attention_vjp: the tape was made with the scale ", kept.scale, " and the offset ",
                           kept.mask.offset, in_words(kept.mask), ", the options have ", options.scale, " and ",
                           options.mask.offset, in_words(options.mask));
  return {kept.sums.data(), kept.Y.data()};
}

/// Checks a call and computes its gradients.
template <class Scalar, class F, class A>
Gradients<Scalar, A> attention_gradients(RowKind kind, const F& feature, const A& transition,
                                         const AttentionVjpCall<Scalar, F, A>& call) {
  if constexpr (check_types<F, A, Matrix<Scalar>, Matrix<Scalar>, Matrix<Scalar>>() &&
                check_vjp<F, A, Scalar, true>()) {
    const VjpArguments<Scalar> arguments{call.Q, call.K, call.V, call.dY};
    check_vjp_call(transition, arguments, call.options);
    const auto rows = call.tape ? rows_of_tape(*call.tape, kind, arguments.dY, call.options) : SavedRows<Scalar>();
    VjpWorkspace<Scalar> own;
    Gradients<Scalar, A> gradients = take_memory(call.reuse, arguments);
    const auto results = begin_gradients(gradients, transition, arguments, call.options, true);
    run_attention_vjp(kind, feature, transition, arguments, results, call.workspace ? *call.workspace : own,
                      call.options, rows);
    return gradients;
  } else {
    return {};
  }
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
