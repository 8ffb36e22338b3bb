// Gradients of the chunked form, O(T).
#pragma once

#include <sympow/attention/gradient/chunked_adjoint.hpp>
#include <sympow/attention/gradient/vjp_checks.hpp>
#include <sympow/attention/state_form.hpp>
#include <sympow/attention/state_gradient.hpp>
#include <sympow/attention/vjp_workspace.hpp>

namespace SYMPOW_NAMESPACE {
namespace detail {

/// dμ = gauge - ⟨[dS; dZ], L [S; Z]⟩, or the gauge from dμ. Embedded scores see no gauge: what goes back is dμ.
template <class Scalar, FeatureMap F, class A>
void set_gauge(const VjpViewOf<Scalar, A>& view, const FoldedSums<Scalar>& S, AdjointContent<Scalar>& adjoint,
               LiftedTurns& turns, bool from_frame) {
  if constexpr (A::key_action == KeyAction::turn) {
    const Planes planes = view.planes();
    Eigen::VectorXd lifted = Eigen::VectorXd::Zero(planes.count);
    if constexpr (F::score == Score::power)
      if (!S.empty() && !adjoint.sums.empty()) {
        turns.set(adjoint.sums.log_channels.size(), degree_of<F>, planes);
        turns.add(adjoint.sums, S, weight_of(0, S.exponent() + adjoint.sums.exponent()), lifted.data());
      }
    if (!from_frame)
      adjoint.frame = adjoint.gauge - lifted;
    else if (adjoint.frame.size() == 0)
      adjoint.gauge = lifted;
    else
      adjoint.gauge = adjoint.frame + lifted;
  }
  adjoint.has_gauge = true;
}

/// Checks a call and takes it back.
template <class Normalization, class F, class A, class DQ, class DK, class DV, class DY>
void run_chunked_vjp(const F& feature, const A& transition, const Eigen::MatrixBase<DQ>& Q,
                     const Eigen::MatrixBase<DK>& K, const Eigen::MatrixBase<DV>& V, const Eigen::MatrixBase<DY>& dY,
                     const State<typename DQ::Scalar, F>& state, StateGradient<typename DQ::Scalar, F>& adjoint,
                     Gradients<typename DQ::Scalar, A>& gradients, VjpWorkspace<typename DQ::Scalar>& workspace,
                     const Options& options) {
  using Scalar = typename DQ::Scalar;
  if constexpr (check_types<F, A, DQ, DK, DV>() && check_moves<A>() && check_vjp<F, A, Scalar>()) {
    const ConstBatch<Scalar> queries(Q.derived()), keys(K.derived()), values(V.derived()), d_rows(dY.derived());
    check_call(transition, queries, keys, values, options);
    check_state(state, feature, transition, queries, values);
    check_state_mask(options.mask);
    check_d_rows(d_rows, queries, values);
    check_size("key dimension of the state's gradient", adjoint.key_dimension(), state.key_dimension(),
               "that of the state");
    check_size("value dimension of the state's gradient", adjoint.value_dimension(), state.value_dimension(),
               "that of the state");
    begin_gradients(gradients, transition, queries, keys, values, keys.cols());
    StateContent<Scalar> start = StateAccess::content(state);
    StateOperations<Scalar, F>::fold(feature, start);
    StateAt<Scalar> at{std::move(start.sums), std::move(start.frames.end)};
    AdjointContent<Scalar> behind = StateGradientAccess::content(adjoint);
    const ViewOf<Scalar, A> view(transition);
    VjpViewOf<Scalar, A> vjp(transition, gradients.transition);
    AdjointMemory<Scalar>& memory = adjoint_memory_of(workspace);
    const VjpCall<Scalar> call{view,
                               vjp,
                               row_kind<Normalization, F>(),
                               options,
                               queries,
                               keys,
                               values,
                               d_rows,
                               gradients.Q,
                               gradients.K,
                               gradients.V,
                               gradients.scale,
                               memory_of(workspace),
                               memory};
    const StateContent<Scalar>& content = StateAccess::content(state);
    const Index chunk = chunk_of(options, {.T = keys.cols(),
                                           .d = keys.rows(),
                                           .e = values.rows(),
                                           .D = static_cast<double>(content.sums.S.cols()),
                                           .action = A::key_action,
                                           .keeps_state = true,
                                           .from_nothing = content.frames.tokens == 0});
    if (!behind.has_gauge) {
      StateAt<Scalar> last = at;
      ChunkedVjp<Scalar, F>::absorb(feature, call, {last, behind}, chunk);
      set_gauge<Scalar, F>(vjp, last.sums, behind, memory.turns, true);
    }
    const FoldedSums<Scalar> first = at.sums;
    ChunkedVjp<Scalar, F>::run(feature, call, {at, behind}, chunk);
    set_gauge<Scalar, F>(vjp, first, behind, memory.turns, false);
    StateGradientAccess::content(adjoint) = std::move(behind);
  }
}

}  // namespace detail

/// The gradients of `chunked`, from the state before the first token and dY = ∂loss/∂Y.
///
///     dQ, dK, dV and those of the transition and of the scale, of Σ_i dy_i·y_i and what `adjoint` says of the state
///
/// Shapes: as of `chunked`; dY: e × T. `adjoint` is the gradient of the state behind the last token, and then that of
/// the state before the first. A row without weight has no gradient, and its dy changes nothing. Rows and normalisers
/// of the forward pass are not needed. Cost: four products of D (e + 1) a token, a fifth for the part (k - 1)/k of
/// states that is made again, k = `Options::checkpoint`; memory: a state every k chunks and k more. The same bits for
/// every k. Throws as `chunked` does, before anything is touched. Source: reverse mode by chunks.
template <class Normalization = DefaultNormalization, FeatureMap F, Transition A, class DQ, class DK, class DV, class DY>
void chunked_vjp(const F& feature, const A& transition, const Eigen::MatrixBase<DQ>& Q,
                 const Eigen::MatrixBase<DK>& K, const Eigen::MatrixBase<DV>& V, const Eigen::MatrixBase<DY>& dY,
                 const State<typename DQ::Scalar, F>& state, StateGradient<typename DQ::Scalar, F>& adjoint,
                 Gradients<typename DQ::Scalar, A>& gradients, VjpWorkspace<typename DQ::Scalar>& workspace,
                 const Options& options = {}) {
  detail::run_chunked_vjp<Normalization>(feature, transition, Q, K, V, dY, state, adjoint, gradients, workspace,
                                         options);
}

/// The same, returning the gradients.
template <class Normalization = DefaultNormalization, FeatureMap F, Transition A, class DQ, class DK, class DV, class DY>
[[nodiscard]] Gradients<typename DQ::Scalar, A> chunked_vjp(
    const F& feature, const A& transition, const Eigen::MatrixBase<DQ>& Q, const Eigen::MatrixBase<DK>& K,
    const Eigen::MatrixBase<DV>& V, const Eigen::MatrixBase<DY>& dY, const State<typename DQ::Scalar, F>& state,
    StateGradient<typename DQ::Scalar, F>& adjoint, const Options& options = {}) {
  Gradients<typename DQ::Scalar, A> gradients;
  VjpWorkspace<typename DQ::Scalar> workspace;
  chunked_vjp<Normalization>(feature, transition, Q, K, V, dY, state, adjoint, gradients, workspace, options);
  return gradients;
}

/// The same from an empty state, behind which nothing comes.
template <class Normalization = DefaultNormalization, FeatureMap F, Transition A, class DQ, class DK, class DV, class DY>
[[nodiscard]] Gradients<typename DQ::Scalar, A> chunked_vjp(
    const F& feature, const A& transition, const Eigen::MatrixBase<DQ>& Q, const Eigen::MatrixBase<DK>& K,
    const Eigen::MatrixBase<DV>& V, const Eigen::MatrixBase<DY>& dY, const Options& options = {}) {
  const State<typename DQ::Scalar, F> state(feature, Q.rows(), V.rows());
  StateGradient<typename DQ::Scalar, F> adjoint(feature, Q.rows(), V.rows());
  return chunked_vjp<Normalization>(feature, transition, Q, K, V, dY, state, adjoint, options);
}

}  // namespace SYMPOW_NAMESPACE
