// Gradients of the chunked form, O(T).
#pragma once

#include <string_view>

#include <sympow/attention/checkpoints.hpp>
#include <sympow/attention/state_form.hpp>
#include <sympow/attention/state_gradient.hpp>
#include <sympow/attention/vjp_call.hpp>

namespace SYMPOW_NAMESPACE {

/// The arguments of `chunked_vjp` by name. Shapes: Q, K: d × T, V and dY: e × T, one token a column; under `full()` Q
/// and dY may have another number of columns than K and V.
template <class Scalar, FeatureMap F, Transition A>
struct ChunkedVjpCall {
  ConstBatch<Scalar> Q, K, V, dY;
  OptionalRef<const State<Scalar, F>> state = {};       ///< before the first token; an empty one if it is left out
  OptionalRef<const Checkpoints<Scalar, F>> tape = {};  ///< that `chunked` has filled, in the place of that state
  /// The gradient of the state after the last token, and then that of the state before the first. 0 if it is left out.
  OptionalRef<StateGradient<Scalar, F>> d_state = {};
  OptionalRef<Gradients<Scalar, A>> reuse = {};      ///< gradients whose memory those returned take over
  OptionalRef<VjpWorkspace<Scalar>> workspace = {};  ///< scratch; the call makes its own if it is left out
  Options options = {};
};
/// Without an embedding there is no state.
template <class Scalar, FeatureMap F, Transition A>
  requires(!FiniteFeatureMap<F>)
struct ChunkedVjpCall<Scalar, F, A> {
  ConstBatch<Scalar> Q, K, V, dY;
  OptionalRef<Gradients<Scalar, A>> reuse = {};
  OptionalRef<VjpWorkspace<Scalar>> workspace = {};
  Options options = {};
};

namespace detail {

/// Where keys turn: dμ = gauge - ⟨[dS; dZ], L [S; Z]⟩, or the gauge from dμ. Embedded scores see no gauge: what goes
/// back is dμ.
template <class Scalar, FeatureMap F, class A>
void set_gauge(const VjpViewOf<Scalar, A>& view, const StateSums<Scalar>& S, Adjoint<Scalar>& adjoint,
               LiftedTurns& turns, bool from_frame) {
  const Planes planes = view.planes();
  Eigen::VectorXd lifted = Eigen::VectorXd::Zero(planes.count);
  if constexpr (F::score == Score::power)
    if (!S.empty() && !adjoint.sums.empty()) {
      turns.set(adjoint.sums.log_channels.size(), degree_of<F>, planes);
      turns.add(adjoint.sums, S, 1, lifted.data());
      for (double& x : lifted) x = times_power_of_two(x, S.exponent() + adjoint.sums.exponent());
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

/// The sums of a state, all of them folded.
template <class Scalar, class F>
void set_folded(const F& feature, const StateContent<Scalar>& state, Checkpoint<Scalar>& at) {
  at.frame = state.frames.end;
  if (state.sums.recent.size == 0 && !state.sums.is_split() && state.sums.elapsed.high == 0 &&
      !state.sums.channels_decay()) {
    at.sums = state.sums;
    return at.sums.recent.clear(0);
  }
  StateContent<Scalar> copy = state;
  StateOperations<Scalar, F>::fold(feature, copy);
  copy.sums.make_dense();
  copy.sums.recent.clear(0);
  std::swap(at.sums, copy.sums);
}

/// Takes a call back that is checked; adds to the gradients. `adjoint` is that behind the last token, and then that
/// before the first. `states(n)` is the first state or, of `count`, that before so many times `tokens_between` tokens.
template <class Normalization, class F, class A, class Scalar, class States>
void run_chunked_vjp(const F& feature, const A& transition, const VjpArguments<Scalar>& arguments,
                     const VjpResults<Scalar, A>& results, const States& states, Index count, Index tokens_between,
                     Index chunk, StateGradient<Scalar, F>& adjoint, VjpWorkspace<Scalar>& workspace,
                     const Options& options) {
  static_cast<void>(check_vjp<F, A, Scalar>());  // a sentence, if there is no way back
  Adjoint<Scalar> content = StateGradientAccess::content(adjoint);
  VjpViews<Scalar, F, A> views(transition, results.transition);
  const auto call = backward_call<Normalization, F>(views, arguments, results, workspace, options);
  Checkpoint<Scalar> first{{arguments.K.rows(), arguments.V.rows(), feature.dimension(arguments.K.rows()), 0}, {}};
  const auto load = [&](Index n, Checkpoint<Scalar>& at) {
    set_folded<Scalar, F>(feature, StateAccess::content(states(n)), at);
  };
  const CheckpointSource<Scalar> given{load, count, tokens_between, content};
  load(0, first);
  constexpr bool turns = A::key_action == KeyAction::turn;
  if (turns && !content.has_gauge) {
    Checkpoint<Scalar> last = first;
    ChunkedVjp<Scalar, F>::absorb(feature, call, given, chunk, last);
    if constexpr (turns) set_gauge<Scalar, F>(views.back(), last.sums, content, call.buffers.state.turns, true);
  }
  if constexpr (turns) {
    ChunkedVjp<Scalar, F>::run(feature, call, given, chunk, first);
    set_gauge<Scalar, F>(views.back(), first.sums, content, call.buffers.state.turns, false);
  } else {
    ChunkedVjp<Scalar, F>::run(feature, call, given, chunk, std::move(first));
  }
  StateGradientAccess::content(adjoint) = std::move(content);
}
template <class Normalization, class F, class A, class Scalar>
void run_chunked_vjp(const F& feature, const A& transition, const VjpArguments<Scalar>& arguments,
                     const VjpResults<Scalar, A>& results, const State<Scalar, F>& state,
                     StateGradient<Scalar, F>& adjoint, VjpWorkspace<Scalar>& workspace, const Options& options) {
  ProblemShape shape = head_shape(feature, transition, arguments.K.cols(), arguments.K.rows(), arguments.V.rows());
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

[[nodiscard]] constexpr std::string_view in_words(KeyAction action) {
  using enum KeyAction;
  return action == none    ? "leaves keys alone"
         : action == turn  ? "turns keys"
         : action == scale ? "scales the channels of keys"
                           : "mixes the channels of keys";
}

/// Throws `InvalidArgument`, `ShapeMismatch`, `FeatureMismatch` or `FrameMismatch` for checkpoints that the forward
/// pass of a call cannot have left.
template <class Scalar, class F, class A, class K, class V>
void check_checkpoints(const Checkpoints<Scalar, F>& checkpoints, const F& feature, const A& transition, const K& keys,
                       const V& values) {
  if (checkpoints.size() == 0) raise<InvalidArgument>("chunked_vjp: the checkpoints are empty, chunked() fills them");
  check_size("rows of K", keys.rows(), checkpoints[0].key_dimension(), "key dimension of the checkpoints");
  check_size("rows of V", values.rows(), checkpoints[0].value_dimension(), "value dimension of the checkpoints");
  check_size("columns of K", keys.cols(), CheckpointsAccess::tokens(checkpoints), "tokens of the checkpoints");
  if (!same_feature(checkpoints[0].feature(), feature))
    raise<FeatureMismatch>("the checkpoints were left with another feature map than that of the call");
  if (const KeyAction action = CheckpointsAccess::action(checkpoints); action != A::key_action)
    raise<FrameMismatch>("the checkpoints were left by a transition that ", in_words(action), ", that of the call ",
                         in_words(A::key_action));
  try {
    transition.check_frame(CheckpointsAccess::frame(checkpoints), keys.rows());
  } catch (...) {
    rethrow_with_prefix(Errors{}, "the last state of the checkpoints: ");
  }
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

/// Throws unless a call from a state has gradients.
template <class Scalar, class F, class A>
void check_chunked_vjp(const F& feature, const A& transition, const VjpArguments<Scalar>& x,
                       const State<Scalar, F>& state, const StateGradient<Scalar, F>& d_state, const Options& options) {
  check_vjp_call(transition, x, options);
  check_state(state, feature, transition, x.Q, x.V);
  check_state_mask(options.mask);
  check_adjoint(d_state, feature, transition, x);
}
/// Throws unless a call from checkpoints has gradients.
template <class Scalar, class F, class A>
void check_chunked_vjp(const F& feature, const A& transition, const VjpArguments<Scalar>& x,
                       const Checkpoints<Scalar, F>& tape, const StateGradient<Scalar, F>& d_state,
                       const Options& options) {
  check_vjp_call(transition, x, options);
  if (options.mask != causal()) raise<InvalidArgument>("chunked_vjp: checkpoints go with the mask causal()");
  check_checkpoints(tape, feature, transition, x.K, x.V);
  check_adjoint(d_state, feature, transition, x);
}

/// Checks a call and computes its gradients.
template <class Normalization, class Scalar, class F, class A>
Gradients<Scalar, A> chunked_gradients(const F& feature, const A& transition,
                                       const ChunkedVjpCall<Scalar, F, A>& call) {
  if constexpr (check_finite_map<F>() && check_types<F, A, Matrix<Scalar>, Matrix<Scalar>, Matrix<Scalar>>() &&
                check_moves<F, A>() && check_vjp<F, A, Scalar>()) {
    const VjpArguments<Scalar> x{call.Q, call.K, call.V, call.dY};
    if (call.state && call.tape)
      raise<InvalidArgument>(
          "chunked_vjp: a state and a tape are given, must be one of them: a tape begins with a state");
    std::optional<StateGradient<Scalar, F>> own_d_state;
    if (!call.d_state) own_d_state.emplace(feature, x.K.rows(), x.V.rows());
    StateGradient<Scalar, F>& d_state = call.d_state ? *call.d_state : *own_d_state;
    const auto run = [&](const auto& from) {
      check_chunked_vjp(feature, transition, x, from, d_state, call.options);
      VjpWorkspace<Scalar> own;
      Gradients<Scalar, A> gradients = take_memory(call.reuse, x);
      const auto results = begin_gradients(gradients, transition, x, call.options, false);
      run_chunked_vjp<Normalization>(feature, transition, x, results, from, d_state,
                                     call.workspace ? *call.workspace : own, call.options);
      return gradients;
    };
    if (call.tape) return run(*call.tape);
    if (call.state) return run(*call.state);
    return run(State<Scalar, F>(feature, x.K.rows(), x.V.rows()));
  } else {
    return {};
  }
}

}  // namespace detail

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
[[nodiscard]] Gradients<float, A> chunked_vjp(const F& feature, const A& transition,
                                              const ChunkedVjpCall<float, F, A>& call) {
  return detail::chunked_gradients<Normalization>(feature, transition, call);
}
/// Overload for double.
template <class Normalization = DefaultNormalization, FeatureMap F, Transition A>
[[nodiscard]] Gradients<double, A> chunked_vjp(const F& feature, const A& transition,
                                               const ChunkedVjpCall<double, F, A>& call) {
  return detail::chunked_gradients<Normalization>(feature, transition, call);
}

}  // namespace SYMPOW_NAMESPACE
