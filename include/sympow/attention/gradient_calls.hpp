// Calls of gradients: their checks, and then the pass.
#pragma once

#include <string_view>

#include <sympow/attention/form_calls.hpp>
#include <sympow/attention/state_gradient.hpp>
#include <sympow/attention/vjp_call.hpp>

namespace SYMPOW_NAMESPACE::detail {

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
  if (options.scale != kept.scale || options.mask != kept.mask)
    raise<InvalidArgument>("attention_vjp: the tape was made with the scale ", kept.scale, " and ", in_words(kept.mask),
                           ", the options have ", options.scale, " and ", in_words(options.mask));
  return {kept.sums.data(), kept.Y.data()};
}

/// Where keys turn: dμ = gauge - ⟨[dS; dZ], L [S; Z]⟩, or the gauge from dμ. Embedded scores see no gauge: what goes
/// back is dμ.
template <class Scalar, FeatureMap F>
void set_gauge(const VjpView<Scalar>& view, const StateSums<Scalar>& S, Adjoint<Scalar>& adjoint, LiftedTurns& turns,
               bool from_frame) {
  const Planes planes = view.planes();
  Eigen::VectorXd lifted = Eigen::VectorXd::Zero(planes.count);
  if constexpr (F::score == Score::power)
    if (!S.empty() && !adjoint.sums.empty()) {
      turns.set(adjoint.sums.log_channels.size(), degree_of<F>, planes);
      turns.add(adjoint.sums, S, 1, lifted.data());
      const Weight pending(adjoint.sums.elapsed);
      for (double& x : lifted)
        x = times_power_of_two(x * pending.fraction, S.exponent() + adjoint.sums.exponent() + pending.exponent);
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

/// An empty state without a tail.
template <class Scalar, class F>
StateContent<Scalar> empty_content(const F& feature, Index d, Index e) {
  StateContent<Scalar> content{{d, e, feature.dimension(d), 0}};
  content.frames.log_channels.setZero(d);
  return content;
}

/// A state, all of it folded, without a tail or the key product; scalar decay that is pending waits.
template <class Scalar, class F>
void set_folded(const F& feature, const StateContent<Scalar>& state, StateContent<Scalar>& at) {
  const bool have_mixed = state.frames.have_mixed();
  if (state.sums.recent.size == 0 && !state.sums.is_split() && !state.sums.channels_decay()) {
    at.sums = state.sums;
    at.frames = state.frames;
  } else {
    StateContent<Scalar> copy = state;
    fold_state(feature, copy);
    copy.sums.make_dense();
    std::swap(at, copy);
  }
  at.sums.recent.clear(0);
  const Index d = at.frames.log_channels.size();
  resize_safely(at.frames.key_product, have_mixed ? d : 0, have_mixed ? 0 : d);
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
template <class Scalar, class F, class K, class V>
void check_tape(const Tape<Scalar, F>& tape, const F& feature, const TransitionView<Scalar>& transition, const K& keys,
                const V& values) {
  if (tape.states() == 0)
    raise<InvalidArgument>("chunked_vjp: the tape holds no states, must be one that chunked() has filled");
  const TapeContent<Scalar, F>& kept = TapeAccess::content(tape);
  check_size("rows of K", keys.rows(), tape.state(0).key_dimension(), "key dimension of the tape's states");
  check_size("rows of V", values.rows(), tape.state(0).value_dimension(), "value dimension of the tape's states");
  check_size("columns of K", keys.cols(), kept.tokens, "tokens of the tape");
  if (!same_feature(tape.state(0).feature(), feature))
    raise<FeatureMismatch>("the tape was filled with another feature map than that of the call");
  if (kept.action != transition.key_action())
    raise<FrameMismatch>("the tape was filled under a transition that ", in_words(kept.action), ", that of the call ",
                         in_words(transition.key_action()));
  try {
    transition.check_frame(kept.frame, keys.rows());
  } catch (...) {
    rethrow_with_prefix(Errors{}, "the last state of the tape: ");
  }
}

/// Throws `ShapeMismatch` or `FrameMismatch` unless a gradient is that of a state which the call could leave.
template <class Scalar, class F>
void check_adjoint(const StateGradient<Scalar, F>& adjoint, const F& feature, Index planes,
                   const VjpArguments<Scalar>& x) {
  check_size("key dimension of the state's gradient", adjoint.key_dimension(), x.Q.rows(), "that of the state");
  check_size("value dimension of the state's gradient", adjoint.value_dimension(), x.V.rows(), "that of the state");
  check_size("dimension of the state's gradient", StateGradientAccess::content(adjoint).sums.S.cols(),
             feature.dimension(x.Q.rows()), "that of the feature map");
  const Index angles = adjoint.frame().size();
  if (angles != 0 && angles != planes)
    raise<FrameMismatch>("the state's gradient is that under a rotation of ", angles, " ", Frame::angles,
                         ", the transition has ", planes,
                         "; begin with a new StateGradient, or hand on that of the call "
                         "behind this one");
}

/// The gradient of a head's state; nothing for a feature map without an embedding.
template <class Scalar, class F>
struct StateGradientOf {
  using type = typename StateOf<Scalar, F>::type;
};
template <class Scalar, FiniteFeatureMap F>
struct StateGradientOf<Scalar, F> {
  using type = StateGradient<Scalar, F>;
};

/// Gradients of calls of a feature map under any transition, compiled once for a scalar type. What checks throw they
/// throw before anything is touched; the others take a checked call and add to its gradients.
template <class Scalar, FeatureMap F>
struct GradientCalls {
  using OfCall = VjpTransition<Scalar>;
  using Arguments = VjpArguments<Scalar>;
  using Results = VjpResults<Scalar>;
  using TapeRef = OptionalRef<const Tape<Scalar, F>>;
  using StateRef = OptionalRef<const typename StateOf<Scalar, F>::type>;
  using OfState = typename StateGradientOf<Scalar, F>::type;

  /// Returns what the tape says of the rows, if there is one.
  static SavedRows<Scalar> check_attention(RowKind kind, const OfCall& transition, const Arguments& x, TapeRef tape,
                                           const Options& options);
  static void attention(RowKind kind, const F& feature, OfCall& transition, const Arguments& x, const Results& to,
                        VjpWorkspace<Scalar>& work, const Options& options, const SavedRows<Scalar>& saved = {});

  /// From a state or from a tape. `adjoint` is that behind the last token, and then that before the first.
  static void check_chunked(const F& feature, OfCall& transition, const Arguments& x, StateRef state, TapeRef tape,
                            const OfState& adjoint, const Options& options)
    requires FiniteFeatureMap<F>;
  static void chunked(RowKind kind, const F& feature, OfCall& transition, const Arguments& x, const Results& to,
                      StateRef state, TapeRef tape, OfState& adjoint, VjpWorkspace<Scalar>& work,
                      const Options& options)
    requires FiniteFeatureMap<F>;
};

template <class Scalar, FeatureMap F>
SavedRows<Scalar> GradientCalls<Scalar, F>::check_attention(RowKind kind, const OfCall& transition, const Arguments& x,
                                                            TapeRef tape, const Options& options) {
  check_vjp_call<F>(transition.given(), x, options);
  return tape ? rows_of_tape(*tape, kind, x.dY, options) : SavedRows<Scalar>();
}

template <class Scalar, FeatureMap F>
void GradientCalls<Scalar, F>::attention(RowKind kind, const F& feature, OfCall& transition, const Arguments& x,
                                         const Results& to, VjpWorkspace<Scalar>& work, const Options& options,
                                         const SavedRows<Scalar>& saved) {
  auto call = backward_call<F>(kind, transition, x, to, work, options);
  call.saved = saved;
  BackwardPasses<Scalar, PassFeature<Scalar, F>>::attention(pass_feature<Scalar>(feature), call);
}

template <class Scalar, FeatureMap F>
void GradientCalls<Scalar, F>::check_chunked(const F& feature, OfCall& transition, const Arguments& x, StateRef state,
                                             TapeRef tape, const OfState& adjoint, const Options& options)
  requires FiniteFeatureMap<F>
{
  check_vjp_call<F>(transition.given(), x, options);
  if (tape) {
    if (options.mask != causal()) raise<InvalidArgument>("chunked_vjp: a tape goes with the mask causal()");
    check_tape(*tape, feature, transition.given(), x.K, x.V);
  } else {
    check_state(*state, feature, transition.given(), x.Q, x.V);
    check_state_mask(options.mask);
  }
  check_adjoint(adjoint, feature, transition.back().planes().count, x);
}

template <class Scalar, FeatureMap F>
void GradientCalls<Scalar, F>::chunked(RowKind kind, const F& feature, OfCall& transition, const Arguments& x,
                                       const Results& to, StateRef state, TapeRef tape, OfState& adjoint,
                                       VjpWorkspace<Scalar>& work, const Options& options)
  requires FiniteFeatureMap<F>
{
  using Pass = BackwardPasses<Scalar, PassFeature<Scalar, F>>;
  const auto& of_pass = pass_feature<Scalar>(feature);
  ProblemShape shape = head_shape(feature, transition.given(), x.K.cols(), x.K.rows(), x.V.rows());
  shape.keeps_state = true;
  shape.from_nothing = state && state->tokens() == 0;
  shape.is_full = options.mask.is_full;
  const Index chunk = tape ? TapeAccess::content(*tape).chunk : chunk_of(options, shape);
  const auto load = [&](Index n, StateContent<Scalar>& at) {
    set_folded<Scalar, F>(feature, StateAccess::content(tape ? tape->state(n) : *state), at);
  };
  Adjoint<Scalar> content = StateGradientAccess::content(adjoint);
  const auto call = backward_call<F>(kind, transition, x, to, work, options);
  StateContent<Scalar> first = empty_content<Scalar>(feature, x.K.rows(), x.V.rows());
  const CheckpointSource<Scalar> given{load, tape ? tape->states() : 1, tape ? tape->tokens_between() : 0, content};
  load(0, first);
  const bool turns = transition.given().key_action() == KeyAction::turn;
  const auto set_gauge_at = [&](StateContent<Scalar>& at, bool from_frame) {
    at.sums.settle();
    set_gauge<Scalar, F>(transition.back(), at.sums, content, call.buffers.state.turns, from_frame);
  };
  if (turns && !content.has_gauge) {
    StateContent<Scalar> last = first;
    Pass::absorb(of_pass, call, given, chunk, last);
    set_gauge_at(last, true);
  }
  if (turns) {
    Pass::chunked(of_pass, call, given, chunk, first);
    set_gauge_at(first, false);
  } else {
    Pass::chunked(of_pass, call, given, chunk, std::move(first));
  }
  StateGradientAccess::content(adjoint) = std::move(content);
}

}  // namespace SYMPOW_NAMESPACE::detail
