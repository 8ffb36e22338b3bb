// Calls of gradients: what they are given and give, their checks, and then the pass.
#pragma once

#include <algorithm>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include <sympow/attention/call_checks.hpp>
#include <sympow/attention/form_calls.hpp>
#include <sympow/attention/state.hpp>
#include <sympow/detail/backward.hpp>
#include <sympow/detail/state_backward.hpp>
#include <sympow/transition/product.hpp>

namespace SYMPOW_NAMESPACE {

// ---- The gradient of a state: what a loss on later tokens, or on the state itself, says to the tokens before it

namespace detail {
/// Of a loss that does not see a state with these sizes.
template <class Scalar>
Adjoint<Scalar> no_adjoint(Index dimension, Index d, Index e) {
  Adjoint<Scalar> adjoint{{d, e, dimension, 0}};
  adjoint.has_gauge = true;
  return adjoint;
}
/// Of one in S, Z and μ.
template <class Scalar, class DS, class DZ>
Adjoint<Scalar> adjoint_of_sums(Index dimension, Index d, const Eigen::MatrixBase<DS>& values,
                                const Eigen::MatrixBase<DZ>& normalizer, const Eigen::VectorXd& frame) {
  if (frame.size() > d / 2)
    raise<ShapeMismatch>("angles of dmu are ", frame.size(), ", must be ", d / 2, " at most, one per plane");
  for (Index u = 0; u < frame.size(); ++u)
    if (!std::isfinite(frame[u]))
      raise<NotFinite>("StateGradient: entry ", u, " of dmu is ", frame[u], ", must be finite");
  Adjoint<Scalar> adjoint{{d, values.rows(), dimension, 0}};
  set_sums({"StateGradient", "dS", "dZ"}, adjoint.sums, values, normalizer);
  adjoint.frame = frame;
  return adjoint;
}
/// Its sums, that all decay is in.
template <class Scalar>
StateSums<Scalar> settled(const Adjoint<Scalar>& adjoint) {
  StateSums<Scalar> copy = adjoint.sums;
  copy.settle();
  return copy;
}
}  // namespace detail

/// The gradient of a loss in S, Z and the frame of a state: a value.
///
///     dS: e × D,   dZ: D,   dμ: an angle a plane under a rotation, empty otherwise
///
/// Of the sums as the formula of `State` says, whatever power of two they are kept with: this too is 2^M times moderate
/// numbers, so that it is right where values() leave the type. `chunked_vjp` takes that of the state behind its last
/// token and leaves that of the state before its first: hand it on to the call before, and the two give what one call
/// over all tokens does. Source: reverse mode of S ← b S A + v φ(k)ᵀ.
///
/// Under a rotation the keys of a state stand in coordinates that its sequence has turned to, so a state's frame is an
/// output of it as S is. A turn of the whole sequence by δ in plane u changes a loss by gauge_u δ, where gauge_u = dμ_u
/// + ⟨[dS; dZ], L_u [S; Z]⟩ is the same before and behind every token and 0 for a loss that sees rows alone.
template <class S, FiniteFeatureMap F>
class StateGradient {
 public:
  /// Of a loss that does not see the state.
  StateGradient(const F& feature, Index d, Index e) : content_(detail::no_adjoint<S>(feature.dimension(d), d, e)) {}
  /// The same for a feature map without parameters.
  StateGradient(Index d, Index e) : StateGradient(F{}, d, e) {}
  /// Of a loss in S, e × D, and Z, D, and where these turn in μ, up to d/2 angles or none. Throws `ShapeMismatch`,
  /// `NotFinite`; a call under which nothing turns refuses dμ with `FrameMismatch`.
  template <class DS, class DZ>
  StateGradient(const F& feature, Index d, const Eigen::MatrixBase<DS>& values, const Eigen::MatrixBase<DZ>& normalizer,
                const Eigen::VectorXd& frame = {})
      : content_(detail::adjoint_of_sums<S>(feature.dimension(d), d, values, normalizer, frame)) {}

  [[nodiscard]] Index key_dimension() const { return content_.sums.log_channels.size(); }  ///< d
  [[nodiscard]] Index value_dimension() const { return content_.sums.S.rows(); }           ///< e

  /// dS, e × D, infinite or 0 where the type cannot hold it.
  [[nodiscard]] Matrix<S> values() const {
    return detail::unscaled(detail::settled(content_), &detail::StateSums<S>::S);
  }
  /// dZ, D, likewise.
  [[nodiscard]] Vector<S> normalizer() const {
    return detail::unscaled(detail::settled(content_), &detail::StateSums<S>::Z);
  }
  /// dμ; empty where nothing turns.
  [[nodiscard]] const Eigen::VectorXd& frame() const { return content_.frame; }

 private:
  friend detail::StateAccess;

  [[nodiscard]] static const void* feature_address() { return nullptr; }

  detail::Adjoint<S> content_;
};

// ---- Calls of gradients: what they are given and give, and what they check beside their form

/// Scratch of one call at a time, as `Workspace` is for forms, which it is as well.
template <class Scalar>
class VjpWorkspace : public Workspace<Scalar> {
  friend detail::WorkspaceAccess;

  detail::BackwardBuffers<Scalar> backward_;
};

/// One for every thread, grown by the calls that use it.
template <class Scalar>
using VjpWorkspaces = std::vector<VjpWorkspace<Scalar>>;

/// Gradients of a loss in everything that a call was made of, from dY = ∂loss/∂Y: what `attention_vjp` and
/// `chunked_vjp` return.
template <class Scalar, class A>
struct Gradients {
  Matrix<Scalar> Q = {},                                 ///< dQ, d × T
      K = {},                                            ///< dK, d × T
      V = {};                                            ///< dV, e × T
  typename detail::GradientOf<A>::type transition = {};  ///< in the transition's parameters, see there
  double scale = 0;                                      ///< in `Options::scale`

  /// In the parameters of a factor of the transition, or of the transition itself: `of<Decay>().log_gamma`.
  template <class Factor>
  [[nodiscard]] const auto& of() const {
    return detail::gradient_of<Factor, A>(transition);
  }
};

}  // namespace SYMPOW_NAMESPACE

namespace SYMPOW_NAMESPACE::detail {

/// Whether a call has gradients; false after a sentence that says what they need. Scores that are direct need no φ.
template <class F, class A, class Scalar, bool is_direct = false>
constexpr bool check_vjp() {
  constexpr bool embeds = F::score == Score::exponential || FeatureMapWithVjp<F> ||
                          (is_direct && (F::score == Score::power || KernelWithSlope<F>)),
                 has_gradients = HasVjp<A, Scalar> && embeds;
  static_assert(
      has_gradients,
      "gradients need a transition with a way back (Gradient, zero_gradient, add_decay_flows, "
      "to_segment_frame_vjp and apply_to_queries_vjp, see transition/segment_vjp.hpp) and embed_vjp(x, y, dy, "
      "dx) of the feature map; those of attention do without the latter for a power, and where there are "
      "kappa(s) and kappa_slope(s)");
  return has_gradients;
}

/// The arguments of gradients: those of the form's pass, dY, and the state or tape with which the form began.
template <class Scalar>
struct VjpInputs {
  ForwardCall<Scalar> call;  ///< without Y
  VjpView<Scalar>& vjp;      ///< of its transition
  MatrixView<const Scalar> dY;
  Given<const StateContent<Scalar>> state = {};  ///< before the first token; without it and a tape nothing came before
  Given<const TapeContent<Scalar>> tape = {};
  /// That behind the last token, and then that before the first. 0 if it is left out.
  OptionalRef<Adjoint<Scalar>> d_state = {};

  [[nodiscard]] Index d() const { return call.K.rows(); }
  [[nodiscard]] Index e() const { return call.V.rows(); }
};

/// f(the call as its pass takes it): for powers the gate of the slowest channel of a token is its scalar gate.
template <class Scalar, FeatureMap F>
void with_backward_call(const F& feature, const VjpInputs<Scalar>& x, const VjpResults<Scalar>& to,
                        VjpWorkspace<Scalar>& workspace, const auto& f) {
  BackwardCall<Scalar> call{
      x.call, &x.vjp, x.dY, to, WorkspaceAccess::forward(workspace), WorkspaceAccess::backward(workspace)};
  const auto factored = F::score == Score::power ? x.vjp.factor_out_max_gate(degree_in(feature)) : nullptr;
  if (factored) call.vjp = factored.get(), call.transition = &factored->transition();
  f(call);
}

/// The rows of a tape. Throws `InvalidArgument` or `ShapeMismatch` unless they can be those of a call.
template <class Scalar, class F>
SavedRows<Scalar> rows_of_tape(const F& feature, const VjpInputs<Scalar>& x) {
  if (!x.tape) return {};
  const TapeContent<Scalar>& kept = *x.tape;
  if (kept.form != Form::attention)
    raise<InvalidArgument>("attention_vjp: the tape holds no rows, must be one that attention() has filled");
  if (!is_feature(x.tape.feature, feature))
    raise<FeatureMismatch>("attention_vjp: the tape was filled with another feature map");
  check_size("columns of dY", x.dY.cols(), std::ssize(kept.sums), "rows of the tape");
  check_size("rows of dY", x.dY.rows(), kept.Y.rows(), "entries of each row of the tape");
  const Options& options = x.call.options;
  if (x.call.rows != kept.kind)
    raise<InvalidArgument>("attention_vjp: the rows of the tape were normalized in another way");
  if (options.scale != kept.scale || options.mask != kept.mask)
    raise<InvalidArgument>("attention_vjp: the tape was made with the scale ", kept.scale, " and ", in_words(kept.mask),
                           ", the options have ", options.scale, " and ", in_words(options.mask));
  return {kept.sums.data(), kept.Y.data()};
}

/// Where keys turn: dμ = gauge - ⟨[dS; dZ], L [S; Z]⟩, or the gauge from dμ. Embedded scores see no gauge: what goes
/// back is dμ.
template <class Scalar, FeatureMap F>
void set_gauge(const F& feature, const VjpView<Scalar>& view, const StateSums<Scalar>& S, Adjoint<Scalar>& adjoint,
               LiftedTurns& turns, bool from_frame) {
  const Planes planes = view.planes();
  Eigen::VectorXd lifted = Eigen::VectorXd::Zero(planes.count);
  if constexpr (F::score == Score::power)
    if (!S.empty() && !adjoint.sums.empty())
      set_flows_of_turns<Scalar>(turns, degree_in(feature), planes, adjoint.sums, S, Weight(adjoint.sums.elapsed),
                                 lifted);
  if (adjoint.gauge.size() == 0) adjoint.gauge.setZero(planes.count);  // no chunk has come by
  if (!from_frame)
    adjoint.frame = adjoint.gauge - lifted;
  else if (adjoint.frame.size() == 0)
    adjoint.gauge = lifted;
  else
    adjoint.gauge = adjoint.frame + lifted;
  adjoint.has_gauge = true;
}

/// Folds all of a state and drops its tail and key product; scalar decay that is pending waits.
template <class Scalar, class F>
void fold_whole(const F& feature, StateContent<Scalar>& state) {
  if (state.sums.recent.size > 0 || state.sums.is_split() || state.sums.channels_decay()) {
    fold_state(feature, state.sums);
    state.sums.make_dense();
  }
  state.sums.recent.clear(0);
  state.frames.drop_product();
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
template <class Scalar, class F>
void check_tape(const F& feature, const VjpInputs<Scalar>& x) {
  const TapeContent<Scalar>& kept = *x.tape;
  const TransitionView<Scalar>& transition = *x.call.transition;
  if (x.call.options.mask != causal()) raise<InvalidArgument>("chunked_vjp: a tape goes with the mask causal()");
  if (kept.form != Form::chunked)
    raise<InvalidArgument>("chunked_vjp: the tape holds no states, must be one that chunked() has filled");
  check_size("columns of K", x.call.K.cols(), kept.tokens, "tokens of the tape");
  if (kept.action != transition.key_action())
    raise<FrameMismatch>("the tape was filled under a transition that ", in_words(kept.action), ", that of the call ",
                         in_words(transition.key_action()));
  try {
    const Given<const StateContent<Scalar>> first{kept.states.front(), x.tape.feature};
    check_state(first, feature, transition, x.d(), x.e());
    transition.check_frame(kept.frame, x.d());
  } catch (...) {
    rethrow_with_prefix(Errors{}, "a state of the tape: ");
  }
}

/// Throws `ShapeMismatch` or `FrameMismatch` unless a gradient is that of a state which the call could leave.
template <class Scalar, class F>
void check_state_gradient(const F& feature, const VjpInputs<Scalar>& x) {
  const Adjoint<Scalar>& adjoint = *x.d_state;
  check_size("key dimension of the state's gradient", adjoint.sums.log_channels.size(), x.d(), "that of the state");
  check_size("value dimension of the state's gradient", adjoint.sums.S.rows(), x.e(), "that of the state");
  check_size("dimension of the state's gradient", adjoint.sums.S.cols(), feature.dimension(x.d()),
             "that of the feature map");
  const Index angles = adjoint.frame.size(), planes = x.vjp.planes().count;
  if (angles != 0 && angles != planes)
    raise<FrameMismatch>("the state's gradient is that under a rotation of ", angles, " ", Frame::angles,
                         ", the transition has ", planes,
                         "; begin with a new StateGradient, or hand on that of the call "
                         "behind this one");
}

/// The adjoint state behind the last token of a call.
template <class Scalar, FeatureMap F>
Adjoint<Scalar> adjoint_of(const F& feature, const VjpInputs<Scalar>& x) {
  return x.d_state ? *x.d_state : no_adjoint<Scalar>(feature.dimension(x.d()), x.d(), x.e());
}

/// The gradients of a state form, from its state or tape.
template <class Scalar, FeatureMap F>
void go_back_by_chunks(const F& feature, const VjpInputs<Scalar>& x, const BackwardCall<Scalar>& call) {
  using Pass = BackwardPasses<Scalar, F>;
  const auto load = [&](Index n, StateContent<Scalar>& at) {  // of a tape with more than one
    at = x.tape->states[static_cast<std::size_t>(n)];
    fold_whole(feature, at);
  };
  StateContent<Scalar> first = x.tape    ? x.tape->states.front()
                               : x.state ? *x.state
                                         : empty_state<Scalar>(feature, x.d(), x.e(), 0);
  fold_whole(feature, first);
  const TransitionView<Scalar>& transition = *x.call.transition;
  const Index chunk = x.tape ? x.tape->chunk : chunk_from(first, transition, x.call.K.cols(), x.call.options);
  Adjoint<Scalar> adjoint = adjoint_of(feature, x);
  const CheckpointSource<Scalar> states{load, x.tape ? std::ssize(x.tape->states) : 1, x.tape ? x.tape->between : 0,
                                        adjoint};
  const bool turns = transition.key_action() == KeyAction::turn;
  const auto set_gauge_at = [&](StateContent<Scalar>& at, bool from_frame) {
    at.sums.settle();
    set_gauge(feature, x.vjp, at.sums, adjoint, call.buffers.state.turns, from_frame);
  };
  if (turns && !adjoint.has_gauge) {
    StateContent<Scalar> last = first;
    Pass::from_states(feature, call, states, chunk, last, BackwardPart::absorb);
    set_gauge_at(last, true);
  }
  StateContent<Scalar> at = turns ? first : std::move(first);
  Pass::from_states(feature, call, states, chunk, at);
  if (turns) set_gauge_at(first, false);
  if (x.d_state) *x.d_state = std::move(adjoint);
}

/// Gradients of calls under any transition, compiled once for a scalar type and a feature map as passes see it.
template <class Scalar, FeatureMap F>
struct GradientCalls {
  using Inputs = VjpInputs<Scalar>;

  /// Throws what the form does, and what is wrong beside; before anything is touched.
  static void check(Form form, const F& feature, const Inputs& x);
  /// Adds to the gradients of a checked call: of the attention form, or else of the chunked one.
  static void run(Form form, const F& feature, const Inputs& x, const VjpResults<Scalar>& to,
                  VjpWorkspace<Scalar>& work);
};

template <class Scalar, FeatureMap F>
void GradientCalls<Scalar, F>::check(Form form, const F& feature, const Inputs& x) {
  const auto& call = x.call;
  check_call<F::score>(call);
  check_rows("dY", x.dY, call.Q, call.V);
  if (call.options.diagnostics != nullptr)
    raise<InvalidArgument>("options: diagnostics are of rows, ask the form for them; gradients have none");
  if (call.options.check_finite) check_finite("dY", x.dY);
  if (form == Form::attention) {
    static_cast<void>(rows_of_tape(feature, x));
  } else if constexpr (has_embedding<F>) {
    if (x.tape) {
      check_tape(feature, x);
    } else {
      check_state(x.state, feature, *call.transition, x.d(), x.e());
      check_state_mask(call.options.mask);
    }
    if (x.d_state) check_state_gradient(feature, x);
  }
}

template <class Scalar, FeatureMap F>
void GradientCalls<Scalar, F>::run(Form form, const F& feature, const Inputs& x, const VjpResults<Scalar>& to,
                                   VjpWorkspace<Scalar>& work) {
  with_backward_call(feature, x, to, work, [&](BackwardCall<Scalar>& call) {
    if (form == Form::attention) {
      call.saved = rows_of_tape(feature, x);
      BackwardPasses<Scalar, F>::attention(feature, call);
    } else if constexpr (has_embedding<F>) {
      go_back_by_chunks(feature, x, call);
    }
  });
}

}  // namespace SYMPOW_NAMESPACE::detail
