// The chunked form: attention inside chunks, the state between them, O(T).
#pragma once

#include <limits>

#include <sympow/attention/checkpoints.hpp>
#include <sympow/attention/compiled_forms.hpp>
#include <sympow/attention/state_form.hpp>

namespace SYMPOW_NAMESPACE {
namespace detail {

/// Runs the chunked form and keeps its states before every so many chunks; none if it fails on its way.
template <class Normalization, class F, class A, class Q, class K, class V, class S>
void record_chunked(const F& feature, const A& transition, const Q& queries, const K& keys, const V& values,
                    State<S, F>& state, Batch<S> Y, Checkpoints<S, F>& tape, OptionalRef<Workspace<S>> workspace,
                    Options options) {
  check_call(transition, queries, keys, values, options);
  check_state(state, feature, transition, queries, values);
  check_output(Y, queries, keys, values);
  if (options.mask != causal())
    raise<InvalidArgument>("chunked: checkpoints go with the mask causal(), of queries that stand at their keys");
  if (options.diagnostics != nullptr)
    raise<InvalidArgument>("chunked: diagnostics are given by calls without checkpoints");
  options.check_finite = false;
  const Index T = keys.cols();
  ProblemShape shape = head_shape(feature, transition, T, keys.rows(), values.rows());
  shape.keeps_state = true;
  shape.from_nothing = state.tokens() == 0;
  options.chunk = chunk_of(options, shape);
  using Access = CheckpointsAccess;
  std::vector<State<S, F>> states;
  std::swap(states, Access::states(tape));
  Access::tokens(tape) = T;
  Access::chunk(tape) = options.chunk;
  Access::action(tape) = A::key_action;
  const Index between = Access::between(tape) =
      options.chunk * std::clamp<Index>(options.checkpoint, 1, std::numeric_limits<Index>::max() / options.chunk);
  if (!states.empty() &&
      !(same_feature(states.front().feature(), feature) && states.front().key_dimension() == state.key_dimension()))
    states.clear();
  std::size_t n = 0;
  const auto keep = [&](Index t) {
    if (t % between != 0) return;
    if (n == states.size()) states.push_back(state);
    auto& kept = StateAccess::content(states[n++]);
    kept = StateAccess::content(state);
    kept.interrupted = false;  // as the call is
  };
  const Visitor<Index> visit_chunk(keep);
  run_state_form<Normalization>(feature, transition, queries, keys, values, state, Y, workspace, options,
                                [&](ForwardCall<S> call) {
                                  call.visit_chunk = &visit_chunk;
                                  StateForms<S, F>::chunked(feature, call);
                                });
  if (T == 0) keep(0);
  Access::frame(tape) = state.frame();
  states.erase(states.begin() + static_cast<std::ptrdiff_t>(n), states.end());
  std::swap(states, Access::states(tape));
}

}  // namespace detail

/// The chunked form, writing the outputs of T tokens and leaving the state ready for the next.
///
///     y_i = (b(start, i) S φ(q̃_i) + Σ_{j ≤ i in the chunk} s_ij v_j)  (/ the same with v = 1)
///
/// Shapes: Q, K: d × T, V and Y: e × T, one token a column; the state carries what came before; `Options::chunk` sets
/// the chunk c. Equal to `attention` and `recurrent` by the row rule, whatever the chunk. Under `full()` there may be
/// another number of queries, which stand from the first key on, and the state goes on by the keys' tokens. Y shares no
/// memory with the inputs. `{Y, tape}` in the place of Y keeps `Checkpoints` for `chunked_vjp`; Y is the same, bit for
/// bit. Cost: T (4 D (e + 1) + c (d + e)) operations and two embeddings a token; memory 2 c D. Throws `ShapeMismatch`,
/// `FeatureMismatch`, `FrameMismatch`, `InterruptedState`, `InvalidArgument` before anything is touched. Source:
/// Symmetric Power Transformers, §1; Conformal Transformations, §3.
template <class Normalization = DefaultNormalization, FeatureMap F, Transition A, class DQ, class DK, class DV, class S,
          class G>
void chunked(const F& feature, const A& transition, const Eigen::MatrixBase<DQ>& Q, const Eigen::MatrixBase<DK>& K,
             const Eigen::MatrixBase<DV>& V, State<S, G>& state,
             const std::type_identity_t<Output<S, Checkpoints<S, G>>>& output,
             std::type_identity_t<OptionalRef<Workspace<S>>> workspace = {}, const Options& options = {}) {
  Batch<S> Y = output.rows();
  if constexpr (detail::check_state_type<typename DQ::Scalar, F, S, G>()) {
    if constexpr (detail::check_types<F, A, DQ, DK, DV>() && detail::check_moves<F, A>())
      if (output.tape())
        return detail::record_chunked<Normalization>(feature, transition, ConstBatch<S>(Q.derived()),
                                                     ConstBatch<S>(K.derived()), ConstBatch<S>(V.derived()), state, Y,
                                                     *output.tape(), workspace, options);
    detail::run_state_form<Normalization>(feature, transition, Q, K, V, state, Y, workspace, options,
                                          [&](const auto& call) { detail::StateForms<S, F>::chunked(feature, call); });
  }
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
  if constexpr (detail::check_finite_map<F>()) {
    State<typename DQ::Scalar, F> state(feature, Q.rows(), V.rows());
    state.drop_key_product();
    return chunked<Normalization>(feature, transition, Q, K, V, state, options);
  } else {
    return {};
  }
}

}  // namespace SYMPOW_NAMESPACE

#ifdef SYMPOW_COMPILED_FORMS
#endif
