// Gradients of the chunked form, O(T).
#pragma once

#include <sympow/attention/checkpoints.hpp>
#include <sympow/attention/gradient/chunked_adjoint.hpp>
#include <sympow/attention/gradient/vjp_call.hpp>
#include <sympow/attention/gradient/vjp_mistakes.hpp>
#include <sympow/attention/state_form.hpp>
#include <sympow/attention/state_gradient.hpp>

namespace SYMPOW_NAMESPACE {
namespace detail {

/// Where keys turn: dμ = gauge - ⟨[dS; dZ], L [S; Z]⟩, or the gauge from dμ. Embedded scores see no gauge: what goes
/// back is dμ.
template <class Scalar, FeatureMap F, class A>
void set_gauge(const VjpViewOf<Scalar, A>& view, const FoldedSums<Scalar>& S, AdjointContent<Scalar>& adjoint,
               LiftedTurns& turns, bool from_frame) {
  const Planes planes = view.planes();
  Eigen::VectorXd lifted = Eigen::VectorXd::Zero(planes.count);
  if constexpr (F::score == Score::power)
    if (!S.empty() && !adjoint.sums.empty()) {
      turns.set(adjoint.sums.log_channels.size(), degree_of<F>, planes);
      turns.add(adjoint.sums, S, weight_of(0, S.exponent() + adjoint.sums.exponent()), lifted.data());
    }
  if (adjoint.gauge.size() == 0) adjoint.gauge.setZero(planes.count);  // no chunk has come by
  if (!from_frame)
    adjoint.frame = adjoint.gauge - lifted;
  else if (adjoint.frame.size() == 0)
    adjoint.gauge = lifted;
  else
    adjoint.gauge = adjoint.frame + lifted;
  adjoint.has_gauge = true;
}

/// Takes a call back that is checked; adds to the gradients. `adjoint` is that behind the last token, and then that
/// before the first. `states(n)` is the first state or, of `count`, that before so many times `tokens_between` tokens.
template <class Normalization, class F, class A, class Scalar, class States>
void run_chunked_vjp(const F& feature, const A& transition, const VjpArguments<Scalar>& arguments,
                     const VjpResults<Scalar, A>& results, const States& states, Index count, Index tokens_between,
                     Index chunk, StateGradient<Scalar, F>& adjoint, VjpWorkspace<Scalar>& workspace,
                     const Options& options) {
  static_cast<void>(check_vjp<F, A, Scalar>());  // a sentence, if there is no way back
  AdjointContent<Scalar> content = StateGradientAccess::content(adjoint);
  VjpViews<Scalar, F, A> views(transition, results.transition);
  AdjointMemory<Scalar>& memory = adjoint_memory_of(workspace);
  const auto call = vjp_call<Normalization, F>(views, arguments, results, workspace, options);
  StateAt<Scalar> first{{arguments.V.rows(), feature.dimension(arguments.K.rows()), arguments.K.rows()}, {}};
  const auto load = [&](Index n, StateAt<Scalar>& at) {
    const StateContent<Scalar>& state = StateAccess::content(states(n));
    at.frame = state.frames.end;
    if (state.tail.size() == 0 && state.sums.is_settled()) {
      at.sums = state.sums;
    } else {
      StateContent<Scalar> copy = state;
      StateOperations<Scalar, F>::fold(feature, copy);
      std::swap(at.sums, copy.sums);
    }
    at.sums.make_whole();
  };
  const StatesOfVjp<Scalar> given{load, count, tokens_between, content};
  load(0, first);
  constexpr bool turns = A::key_action == KeyAction::turn;
  if (turns && !content.has_gauge) {
    StateAt<Scalar> last = first;
    ChunkedVjp<Scalar, F>::absorb(feature, call, given, chunk, last);
    if constexpr (turns) set_gauge<Scalar, F>(views.back(), last.sums, content, memory.turns, true);
  }
  if constexpr (turns) {
    ChunkedVjp<Scalar, F>::run(feature, call, given, chunk, first);
    set_gauge<Scalar, F>(views.back(), first.sums, content, memory.turns, false);
  } else {
    ChunkedVjp<Scalar, F>::run(feature, call, given, chunk, std::move(first));
  }
  StateGradientAccess::content(adjoint) = std::move(content);
}
template <class Normalization, class F, class A, class Scalar>
void run_chunked_vjp(const F& feature, const A& transition, const VjpArguments<Scalar>& arguments,
                     const VjpResults<Scalar, A>& results, const State<Scalar, F>& state,
                     StateGradient<Scalar, F>& adjoint, VjpWorkspace<Scalar>& workspace, const Options& options) {
  HeadShape shape = head_shape(feature, transition, arguments.K.cols(), arguments.K.rows(), arguments.V.rows());
  shape.keeps_state = true;
  shape.from_nothing = state.tokens() == 0;
  shape.is_full = options.mask.is_full;
  const auto states = [&](Index) -> const State<Scalar, F>& { return state; };
  run_chunked_vjp<Normalization>(feature, transition, arguments, results, states, 1, 0, chunk_of(options, shape),
                                 adjoint, workspace, options);
}

template <class Normalization, class F, class A, class Scalar>
void run_chunked_vjp(const F& feature, const A& transition, const VjpArguments<Scalar>& arguments,
                     const VjpResults<Scalar, A>& results, const Checkpoints<Scalar, F>& checkpoints,
                     StateGradient<Scalar, F>& adjoint, VjpWorkspace<Scalar>& workspace, const Options& options) {
  const auto states = [&](Index n) -> const State<Scalar, F>& { return checkpoints[n]; };
  run_chunked_vjp<Normalization>(feature, transition, arguments, results, states, checkpoints.size(),
                                 checkpoints.tokens_between(), CheckpointsAccess::chunk(checkpoints), adjoint,
                                 workspace, options);
}

/// Throws `ShapeMismatch` or `FrameMismatch` unless a gradient is that of a state which the call could leave.
template <class Scalar, class F, class A>
void check_adjoint(const StateGradient<Scalar, F>& adjoint, const F& feature, const A& transition,
                   const VjpArguments<Scalar>& x) {
  check_size("key dimension of the state's gradient", adjoint.key_dimension(), x.Q.rows(), "that of the state");
  check_size("value dimension of the state's gradient", adjoint.value_dimension(), x.V.rows(), "that of the state");
  check_size("dimension of the state's gradient", StateGradientAccess::content(adjoint).sums.S.cols(),
             feature.dimension(x.Q.rows()), "that of the feature map");
  const Index angles = adjoint.frame().size(), planes = planes_of(transition).count;
  if (angles != 0 && angles != planes)
    raise<FrameMismatch>("the state's gradient is that under a rotation of ", angles, " ", Frame::angles,
                         ", the transition has ", planes,
                         "; begin with a new StateGradient, or hand on that of the call "
                         "behind this one");
}

/// Throws unless a state form has the gradients of such a call.
template <class Scalar, class F, class A>
void check_chunked_vjp(const F& feature, const A& transition, const VjpArguments<Scalar>& x,
                       const State<Scalar, F>& state, const StateGradient<Scalar, F>& adjoint, const Options& options) {
  check_vjp_call(transition, x, options);
  check_state(state, feature, transition, x.Q, x.V);
  check_state_mask(options.mask);
  check_adjoint(adjoint, feature, transition, x);
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
/// every k. Under `full()`: five products, and one state. Throws as `chunked` does, before anything is touched. Source:
/// reverse mode by chunks.
template <class Normalization = DefaultNormalization, FeatureMap F, Transition A, class DQ, class DK, class DV,
          class DY>
void chunked_vjp(const F& feature, const A& transition, const Eigen::MatrixBase<DQ>& Q, const Eigen::MatrixBase<DK>& K,
                 const Eigen::MatrixBase<DV>& V, const Eigen::MatrixBase<DY>& dY,
                 const State<typename DQ::Scalar, F>& state, StateGradient<typename DQ::Scalar, F>& adjoint,
                 Gradients<typename DQ::Scalar, A>& gradients, VjpWorkspace<typename DQ::Scalar>& workspace,
                 const Options& options = {}) {
  using Scalar = typename DQ::Scalar;
  if constexpr (detail::check_types<F, A, DQ, DK, DV>() && detail::check_moves<F, A>() &&
                detail::check_vjp<F, A, Scalar>() && detail::check_d_rows<Scalar, DY>()) {
    const ConstBatch<Scalar> queries(Q.derived()), keys(K.derived()), values(V.derived()), d_rows(dY.derived());
    const detail::VjpArguments<Scalar> arguments{queries, keys, values, d_rows};
    detail::check_chunked_vjp(feature, transition, arguments, state, adjoint, options);
    const auto results = detail::begin_gradients(gradients, transition, arguments, options, false);
    detail::run_chunked_vjp<Normalization>(feature, transition, arguments, results, state, adjoint, workspace, options);
  }
}

/// The same from the states that `chunked` has left on its way.
template <class Normalization = DefaultNormalization, FeatureMap F, Transition A, class DQ, class DK, class DV,
          class DY>
void chunked_vjp(const F& feature, const A& transition, const Eigen::MatrixBase<DQ>& Q, const Eigen::MatrixBase<DK>& K,
                 const Eigen::MatrixBase<DV>& V, const Eigen::MatrixBase<DY>& dY,
                 const Checkpoints<typename DQ::Scalar, F>& checkpoints, StateGradient<typename DQ::Scalar, F>& adjoint,
                 Gradients<typename DQ::Scalar, A>& gradients, VjpWorkspace<typename DQ::Scalar>& workspace,
                 const Options& options = {}) {
  using Scalar = typename DQ::Scalar;
  if constexpr (detail::check_types<F, A, DQ, DK, DV>() && detail::check_moves<F, A>() &&
                detail::check_vjp<F, A, Scalar>() && detail::check_d_rows<Scalar, DY>()) {
    const ConstBatch<Scalar> queries(Q.derived()), keys(K.derived()), values(V.derived()), d_rows(dY.derived());
    const detail::VjpArguments<Scalar> arguments{queries, keys, values, d_rows};
    detail::check_vjp_call(transition, arguments, options);
    if (options.mask != causal()) detail::raise<InvalidArgument>("chunked_vjp: checkpoints go with the mask causal()");
    detail::check_checkpoints(checkpoints, feature, transition, keys, values);
    detail::check_adjoint(adjoint, feature, transition, arguments);
    const auto results = detail::begin_gradients(gradients, transition, arguments, options, false);
    detail::run_chunked_vjp<Normalization>(feature, transition, arguments, results, checkpoints, adjoint, workspace,
                                           options);
  }
}

/// The same, returning the gradients.
template <class Normalization = DefaultNormalization, FeatureMap F, Transition A, class DQ, class DK, class DV,
          class DY>
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
template <class Normalization = DefaultNormalization, FeatureMap F, Transition A, class DQ, class DK, class DV,
          class DY>
[[nodiscard]] Gradients<typename DQ::Scalar, A> chunked_vjp(
    const F& feature, const A& transition, const Eigen::MatrixBase<DQ>& Q, const Eigen::MatrixBase<DK>& K,
    const Eigen::MatrixBase<DV>& V, const Eigen::MatrixBase<DY>& dY, const Options& options = {}) {
  if constexpr (detail::check_finite_map<F>()) {
    const State<typename DQ::Scalar, F> state(feature, Q.rows(), V.rows());
    StateGradient<typename DQ::Scalar, F> adjoint(feature, Q.rows(), V.rows());
    return chunked_vjp<Normalization>(feature, transition, Q, K, V, dY, state, adjoint, options);
  } else {
    return {};
  }
}

/// What is no call of it, with a sentence why.
template <class Normalization = DefaultNormalization, class F, Transition A, class... Arguments>
  requires(sizeof...(Arguments) > 0 && detail::ChunkedVjpMistakes<F, A, Arguments...>::any)
auto chunked_vjp(const F&, const A&, Arguments&&...) {
  return detail::ChunkedVjpMistakes<F, A, Arguments...>::explain();
}

}  // namespace SYMPOW_NAMESPACE
