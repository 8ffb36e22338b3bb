// The chunked form: attention inside chunks, the state between them, O(T).
#pragma once

#include <limits>

#include <sympow/attention/compiled_forms.hpp>
#include <sympow/attention/state_form.hpp>
#include <sympow/attention/tape.hpp>

namespace SYMPOW_NAMESPACE {
namespace detail {

/// Runs the chunked form and keeps its states before every so many chunks.
template <class F, class A, class S>
void record_chunked(RowKind kind, const F& feature, const A& transition, const ConstBatch<S>& queries,
                    const ConstBatch<S>& keys, const ConstBatch<S>& values, State<S, F>& state, Batch<S> Y,
                    Tape<S, F>& tape, OptionalRef<Workspace<S>> workspace, Options options) {
  const MatrixView<const S> Q(queries), K(keys), V(values);
  check_call(transition, Q, K, V, options);
  check_state(state, feature, transition, Q, V);
  check_output(Y, Q, K, V);
  if (options.mask != causal())
    raise<InvalidArgument>("chunked: a tape goes with the mask causal(), of queries that stand at their keys");
  if (options.diagnostics != nullptr) raise<InvalidArgument>("chunked: diagnostics are given by calls without a tape");
  options.check_finite = false;
  const Index T = keys.cols();
  ProblemShape shape = head_shape(feature, transition, T, keys.rows(), values.rows());
  shape.keeps_state = true;
  shape.from_nothing = state.tokens() == 0;
  options.chunk = chunk_of(options, shape);
  TapeContent<S, F>& kept = TapeAccess::begin(tape);
  std::vector<State<S, F>>& states = kept.states;
  kept.tokens = T, kept.chunk = options.chunk, kept.action = A::key_action;
  kept.between =
      options.chunk * std::clamp<Index>(options.checkpoint, 1, std::numeric_limits<Index>::max() / options.chunk);
  if (!states.empty() &&
      !(same_feature(states.front().feature(), feature) && states.front().key_dimension() == state.key_dimension()))
    states.clear();
  std::size_t n = 0;
  const auto keep = [&](Index t) {
    if (t % kept.between != 0) return;
    if (n == states.size()) states.push_back(state);
    auto& content = StateAccess::content(states[n++]);
    content = StateAccess::content(state);
    content.interrupted = false;  // as the call is
  };
  const Visitor<Index> visit_chunk(keep);
  run_state_form(kind, feature, transition, queries, keys, values, state, Y, workspace, options,
                 [&](ForwardCall<S> call) {
                   call.visit_chunk = &visit_chunk;
                   StateForms<S, F>::chunked(feature, call);
                 });
  if (T == 0) keep(0);
  states.erase(states.begin() + static_cast<std::ptrdiff_t>(n), states.end());
  kept.frame = state.frame();
  kept.form = Form::chunked;
}

/// Runs the chunked form, with a tape if it is given one.
template <class F, class A, class S>
void run_chunked(RowKind kind, const F& feature, const A& transition, const std::type_identity_t<ConstBatch<S>>& Q,
                 const std::type_identity_t<ConstBatch<S>>& K, const std::type_identity_t<ConstBatch<S>>& V,
                 State<S, F>& state, const std::type_identity_t<Output<S, Tape<S, F>>>& output,
                 std::type_identity_t<OptionalRef<Workspace<S>>> workspace, const Options& options) {
  Batch<S> Y = output.rows();
  if (output.tape())
    return record_chunked(kind, feature, transition, Q, K, V, state, Y, *output.tape(), workspace, options);
  run_state_form(kind, feature, transition, Q, K, V, state, Y, workspace, options,
                 [&](const auto& call) { StateForms<S, F>::chunked(feature, call); });
}

}  // namespace detail

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
    detail::run_chunked(kind, feature, transition, Q.derived(), K.derived(), V.derived(), state, output, workspace,
                        options);
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
    detail::run_state_form(detail::RowKind::sums, feature, transition, K.derived(), K.derived(), V.derived(), state, {},
                           workspace, options,
                           [&](const auto& call) { detail::StateForms<S, F>::chunked(feature, call); });
}

}  // namespace SYMPOW_NAMESPACE
