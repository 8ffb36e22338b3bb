// Gradients of the chunked form, O(T).
#pragma once

#include <string_view>

#include <sympow/attention/compiled_gradients.hpp>
#include <sympow/attention/state_form.hpp>
#include <sympow/attention/state_gradient.hpp>
#include <sympow/attention/tape.hpp>
#include <sympow/attention/vjp_call.hpp>

namespace SYMPOW_NAMESPACE {

/// The arguments of `chunked_vjp` by name. Shapes: Q, K: d × T, V and dY: e × T, one token a column; under `full()` Q
/// and dY may have another number of columns than K and V.
template <class Scalar, FeatureMap F, Transition A>
struct ChunkedVjpCall {
  ConstBatch<Scalar> Q, K, V, dY;
  OptionalRef<const State<Scalar, F>> state = {};  ///< before the first token; an empty one if it is left out
  OptionalRef<const Tape<Scalar, F>> tape = {};    ///< that `chunked` has filled, in the place of that state
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

/// The sums of a state, all of them folded; scalar decay that is pending waits.
template <class Scalar, class F>
void set_folded(const F& feature, const StateContent<Scalar>& state, Checkpoint<Scalar>& at) {
  at.frame = state.frames.end;
  if (state.sums.recent.size == 0 && !state.sums.is_split() && !state.sums.channels_decay()) {
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
/// before the first. `load(n, at)` gives the first state or, of `count`, that before n times `tokens_between` tokens.
template <class F, class A, class Scalar>
void run_chunked_vjp(RowKind kind, const F& feature, const A& transition, const VjpArguments<Scalar>& arguments,
                     const VjpResults<Scalar, A>& results, const Visitor<Index, Checkpoint<Scalar>&>& load, Index count,
                     Index tokens_between, Index chunk, StateGradient<Scalar, F>& adjoint,
                     VjpWorkspace<Scalar>& workspace, const Options& options) {
  static_cast<void>(check_vjp<F, A, Scalar>());  // a sentence, if there is no way back
  Adjoint<Scalar> content = StateGradientAccess::content(adjoint);
  VjpViews<Scalar, F, A> views(transition, results.transition);
  const auto call = backward_call<F>(kind, views, arguments, results, workspace, options);
  Checkpoint<Scalar> first{{arguments.K.rows(), arguments.V.rows(), feature.dimension(arguments.K.rows()), 0}, {}};
  const CheckpointSource<Scalar> given{load, count, tokens_between, content};
  load(0, first);
  constexpr bool turns = A::key_action == KeyAction::turn;
  if (turns && !content.has_gauge) {
    Checkpoint<Scalar> last = first;
    ChunkedVjp<Scalar, F>::absorb(feature, call, given, chunk, last);
    last.sums.settle();
    if constexpr (turns) set_gauge<Scalar, F>(views.back(), last.sums, content, call.buffers.state.turns, true);
  }
  if constexpr (turns) {
    ChunkedVjp<Scalar, F>::run(feature, call, given, chunk, first);
    first.sums.settle();
    set_gauge<Scalar, F>(views.back(), first.sums, content, call.buffers.state.turns, false);
  } else {
    ChunkedVjp<Scalar, F>::run(feature, call, given, chunk, std::move(first));
  }
  StateGradientAccess::content(adjoint) = std::move(content);
}
template <class F, class A, class Scalar>
void run_chunked_vjp(RowKind kind, const F& feature, const A& transition, const VjpArguments<Scalar>& arguments,
                     const VjpResults<Scalar, A>& results, const State<Scalar, F>& state,
                     StateGradient<Scalar, F>& adjoint, VjpWorkspace<Scalar>& workspace, const Options& options) {
  ProblemShape shape = head_shape(feature, transition, arguments.K.cols(), arguments.K.rows(), arguments.V.rows());
  shape.keeps_state = true;
  shape.from_nothing = state.tokens() == 0;
  shape.is_full = options.mask.is_full;
  const auto load = [&](Index, Checkpoint<Scalar>& at) {
    set_folded<Scalar, F>(feature, StateAccess::content(state), at);
  };
  run_chunked_vjp<F, A, Scalar>(kind, feature, transition, arguments, results, load, 1, 0, chunk_of(options, shape),
                                adjoint, workspace, options);
}

template <class F, class A, class Scalar>
void run_chunked_vjp(RowKind kind, const F& feature, const A& transition, const VjpArguments<Scalar>& arguments,
                     const VjpResults<Scalar, A>& results, const Tape<Scalar, F>& tape,
                     StateGradient<Scalar, F>& adjoint, VjpWorkspace<Scalar>& workspace, const Options& options) {
  const auto load = [&](Index n, Checkpoint<Scalar>& at) {
    set_folded<Scalar, F>(feature, StateAccess::content(tape.state(n)), at);
  };
  run_chunked_vjp<F, A, Scalar>(kind, feature, transition, arguments, results, load, tape.states(),
                                tape.tokens_between(), TapeAccess::content(tape).chunk, adjoint, workspace, options);
}

[[nodiscard]] constexpr std::string_view in_words(KeyAction action) {
  using enum KeyAction;
  return action == none    ? "leaves keys alone"
         : action == turn  ? "turns keys"
         : action == scale ? "scales the channels of keys"
                           : "mixes the channels of keys";
}

/// Throws `InvalidArgument`, `ShapeMismatch`, `FeatureMismatch` or `FrameMismatch` for a tape that the forward pass of
/// a call cannot have filled.
template <class Scalar, class F, class A, class K, class V>
void check_tape(const Tape<Scalar, F>& tape, const F& feature, const A& transition, const K& keys, const V& values) {
  if (tape.states() == 0)
    raise<InvalidArgument>("chunked_vjp: the tape holds no states, must be one that chunked() has filled");
  const TapeContent<Scalar, F>& kept = TapeAccess::content(tape);
  check_size("rows of K", keys.rows(), tape.state(0).key_dimension(), "key dimension of the tape's states");
  check_size("rows of V", values.rows(), tape.state(0).value_dimension(), "value dimension of the tape's states");
  check_size("columns of K", keys.cols(), kept.tokens, "tokens of the tape");
  if (!same_feature(tape.state(0).feature(), feature))
    raise<FeatureMismatch>("the tape was filled with another feature map than that of the call");
  if (kept.action != A::key_action)
    raise<FrameMismatch>("the tape was filled under a transition that ", in_words(kept.action), ", that of the call ",
                         in_words(A::key_action));
  try {
    transition.check_frame(kept.frame, keys.rows());
  } catch (...) {
    rethrow_with_prefix(Errors{}, "the last state of the tape: ");
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
/// Throws unless a call from a tape has gradients.
template <class Scalar, class F, class A>
void check_chunked_vjp(const F& feature, const A& transition, const VjpArguments<Scalar>& x,
                       const Tape<Scalar, F>& tape, const StateGradient<Scalar, F>& d_state, const Options& options) {
  check_vjp_call(transition, x, options);
  if (options.mask != causal()) raise<InvalidArgument>("chunked_vjp: a tape goes with the mask causal()");
  check_tape(tape, feature, transition, x.K, x.V);
  check_adjoint(d_state, feature, transition, x);
}

/// Checks a call and computes its gradients.
template <class Scalar, class F, class A>
Gradients<Scalar, A> chunked_gradients(RowKind kind, const F& feature, const A& transition,
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
    std::optional<State<Scalar, F>> empty;
    if (!call.state && !call.tape) empty.emplace(feature, x.K.rows(), x.V.rows());
    const State<Scalar, F>* const state = call.state ? &*call.state : &*empty;
    if (call.tape)
      check_chunked_vjp(feature, transition, x, *call.tape, d_state, call.options);
    else
      check_chunked_vjp(feature, transition, x, *state, d_state, call.options);
    VjpWorkspace<Scalar> own;
    VjpWorkspace<Scalar>& workspace = call.workspace ? *call.workspace : own;
    Gradients<Scalar, A> gradients = take_memory(call.reuse, x);
    const auto results = begin_gradients(gradients, transition, x, call.options, false);
    if (call.tape)
      run_chunked_vjp(kind, feature, transition, x, results, *call.tape, d_state, workspace, call.options);
    else
      run_chunked_vjp(kind, feature, transition, x, results, *state, d_state, workspace, call.options);
    return gradients;
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
  return detail::chunked_gradients(detail::row_kind<Normalization, F>(), feature, transition, call);
}
/// Overload for double.
template <class Normalization = DefaultNormalization, FeatureMap F, Transition A>
[[nodiscard]] Gradients<double, A> chunked_vjp(const F& feature, const A& transition,
                                               const ChunkedVjpCall<double, F, A>& call) {
  return detail::chunked_gradients(detail::row_kind<Normalization, F>(), feature, transition, call);
}

}  // namespace SYMPOW_NAMESPACE
