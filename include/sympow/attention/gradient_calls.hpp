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
struct StateGradientAccess {
  static auto& content(auto& gradient) { return gradient.content_; }
  /// Its sums, that all decay is in. Costs a copy.
  static auto sums(const auto& gradient) { return gradient.settled(); }
};
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
  StateGradient(const F& feature, Index d, Index e) : content_{{d, e, feature.dimension(d), 0}} {
    content_.has_gauge = true;
  }
  /// The same for a feature map without parameters.
  StateGradient(Index d, Index e) : StateGradient(F{}, d, e) {}
  /// Of a loss in S, e × D, and Z, D, and where these turn in μ, up to d/2 angles or none. Throws `ShapeMismatch`,
  /// `NotFinite`; a call under which nothing turns refuses dμ with `FrameMismatch`.
  template <class DS, class DZ>
  StateGradient(const F& feature, Index d, const Eigen::MatrixBase<DS>& values, const Eigen::MatrixBase<DZ>& normalizer,
                const Eigen::VectorXd& frame = {})
      : StateGradient(feature, d, values.rows()) {
    if (frame.size() > d / 2)
      detail::raise<ShapeMismatch>("angles of dmu are ", frame.size(), ", must be ", d / 2, " at most, one per plane");
    for (Index u = 0; u < frame.size(); ++u)
      if (!std::isfinite(frame[u]))
        detail::raise<NotFinite>("StateGradient: entry ", u, " of dmu is ", frame[u], ", must be finite");
    detail::set_sums({"StateGradient", "dS", "dZ"}, content_.sums, values, normalizer);
    content_.frame = frame;
    content_.has_gauge = false;
  }

  [[nodiscard]] Index key_dimension() const { return content_.sums.log_channels.size(); }  ///< d
  [[nodiscard]] Index value_dimension() const { return content_.sums.S.rows(); }           ///< e

  /// dS, e × D, infinite or 0 where the type cannot hold it.
  [[nodiscard]] Matrix<S> values() const { return detail::unscaled(settled(), &detail::StateSums<S>::S); }
  /// dZ, D, likewise.
  [[nodiscard]] Vector<S> normalizer() const { return detail::unscaled(settled(), &detail::StateSums<S>::Z); }
  /// dμ; empty where nothing turns.
  [[nodiscard]] const Eigen::VectorXd& frame() const { return content_.frame; }

 private:
  friend detail::StateGradientAccess;

  [[nodiscard]] detail::StateSums<S> settled() const {
    detail::StateSums<S> copy = content_.sums;
    copy.settle();
    return copy;
  }

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

/// Whether a call has gradients; false after a sentence that names what is missing. Scores that are direct need no φ.
template <class F, class A, class Scalar, bool is_direct = false>
constexpr bool check_vjp() {
  static_assert(
      HasVjp<A, Scalar>,
      "gradients need a transition with a way back: Gradient, zero_gradient, add_decay_flows, to_segment_frame_vjp "
      "and apply_to_queries_vjp, see transition/segment_vjp.hpp");
  constexpr bool embeds = F::score == Score::exponential || FeatureMapWithVjp<F> ||
                          (is_direct && (F::score == Score::power || KernelWithSlope<F>));
  static_assert(embeds,
                "gradients need embed_vjp(x, y, dy, dx) of the feature map; those of attention do without it for a "
                "power, and where there are kappa(s) and kappa_slope(s)");
  return HasVjp<A, Scalar> && embeds;
}

/// What gradient calls are given. Without a state or a tape a state form begins from an empty state.
template <class Scalar, FeatureMap F>
struct VjpInputs {
  RowKind kind;
  const F& feature;
  VjpView<Scalar>& transition;
  MatrixView<const Scalar> Q, K, V, dY;
  Options options;
  OptionalRef<const typename StateOf<Scalar, F>::type> state = {};  ///< before the first token
  OptionalRef<const Tape<Scalar, F>> tape = {};
  /// That behind the last token, and then that before the first. 0 if it is left out.
  OptionalRef<typename StateOf<Scalar, F>::gradient> d_state = {};
};

/// f(the call in the terms of its engine): of powers with the gates of slowest channels as scalar ones.
template <class Scalar, FeatureMap F>
void with_backward_call(const VjpInputs<Scalar, F>& x, const VjpResults<Scalar>& to, VjpWorkspace<Scalar>& workspace,
                        const auto& f) {
  const auto factored = F::score == Score::power ? x.transition.factor_out_max_gate(degree_of<F>) : nullptr;
  VjpView<Scalar>& vjp = factored ? *factored : x.transition;
  f(BackwardCall<Scalar>{.transition = vjp.transition(),
                         .vjp = vjp,
                         .rows = x.kind,
                         .options = x.options,
                         .Q = x.Q,
                         .K = x.K,
                         .V = x.V,
                         .dY = x.dY,
                         .to = to,
                         .forward = WorkspaceAccess::forward(workspace),
                         .buffers = WorkspaceAccess::backward(workspace)});
}

/// The rows of a tape. Throws `InvalidArgument` or `ShapeMismatch` unless they can be those of a call.
template <class Scalar, class F>
SavedRows<Scalar> rows_of_tape(const VjpInputs<Scalar, F>& x) {
  if (!x.tape) return {};
  const TapeContent<Scalar, F>& kept = TapeAccess::content(*x.tape);
  if (kept.form != Form::attention)
    raise<InvalidArgument>("attention_vjp: the tape holds no rows, must be one that attention() has filled");
  check_size("columns of dY", x.dY.cols(), x.tape->rows(), "rows of the tape");
  check_size("rows of dY", x.dY.rows(), kept.Y.rows(), "entries of each row of the tape");
  if (x.kind != kept.kind) raise<InvalidArgument>("attention_vjp: the rows of the tape were normalized in another way");
  if (x.options.scale != kept.scale || x.options.mask != kept.mask)
    raise<InvalidArgument>("attention_vjp: the tape was made with the scale ", kept.scale, " and ", in_words(kept.mask),
                           ", the options have ", x.options.scale, " and ", in_words(x.options.mask));
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
void check_tape(const VjpInputs<Scalar, F>& x) {
  const Tape<Scalar, F>& tape = *x.tape;
  const TransitionView<Scalar>& transition = x.transition.transition();
  if (x.options.mask != causal()) raise<InvalidArgument>("chunked_vjp: a tape goes with the mask causal()");
  if (tape.states() == 0)
    raise<InvalidArgument>("chunked_vjp: the tape holds no states, must be one that chunked() has filled");
  const TapeContent<Scalar, F>& kept = TapeAccess::content(tape);
  check_size("columns of K", x.K.cols(), kept.tokens, "tokens of the tape");
  if (kept.action != transition.key_action())
    raise<FrameMismatch>("the tape was filled under a transition that ", in_words(kept.action), ", that of the call ",
                         in_words(transition.key_action()));
  try {
    check_state(tape.state(0), x.feature, transition, x.Q, x.V);
    transition.check_frame(kept.frame, x.K.rows());
  } catch (...) {
    rethrow_with_prefix(Errors{}, "a state of the tape: ");
  }
}

/// Throws `ShapeMismatch` or `FrameMismatch` unless a gradient is that of a state which the call could leave.
template <class Scalar, class F>
void check_state_gradient(const VjpInputs<Scalar, F>& x) {
  const StateGradient<Scalar, F>& adjoint = *x.d_state;
  check_size("key dimension of the state's gradient", adjoint.key_dimension(), x.Q.rows(), "that of the state");
  check_size("value dimension of the state's gradient", adjoint.value_dimension(), x.V.rows(), "that of the state");
  check_size("dimension of the state's gradient", StateGradientAccess::content(adjoint).sums.S.cols(),
             x.feature.dimension(x.Q.rows()), "that of the feature map");
  const Index angles = adjoint.frame().size(), planes = x.transition.planes().count;
  if (angles != 0 && angles != planes)
    raise<FrameMismatch>("the state's gradient is that under a rotation of ", angles, " ", Frame::angles,
                         ", the transition has ", planes,
                         "; begin with a new StateGradient, or hand on that of the call "
                         "behind this one");
}

/// The adjoint state behind the last token of a call.
template <class Scalar, FiniteFeatureMap F>
Adjoint<Scalar> adjoint_of(const VjpInputs<Scalar, F>& x) {
  if (x.d_state) return StateGradientAccess::content(*x.d_state);
  const StateGradient<Scalar, F> zero(x.feature, x.K.rows(), x.V.rows());
  return StateGradientAccess::content(zero);
}

/// The gradients of a state form, from its state or tape.
template <class Scalar, FiniteFeatureMap F>
void go_back_by_chunks(const VjpInputs<Scalar, F>& x, const BackwardCall<Scalar>& call) {
  using Pass = BackwardPasses<Scalar, InterfaceOf<Scalar, F>>;
  const auto& of_pass = pass_feature<Scalar>(x.feature);
  const Index d = x.K.rows(), e = x.V.rows();
  std::optional<State<Scalar, F>> empty;
  if (!x.state && !x.tape) empty.emplace(x.feature, d, e, 0);
  const auto load = [&](Index n, StateContent<Scalar>& at) {
    at = StateAccess::content(x.tape ? x.tape->state(n) : x.state ? *x.state : *empty);
    fold_whole(x.feature, at);
  };
  StateContent<Scalar> first{{d, e, x.feature.dimension(d), 0}};
  load(0, first);
  const Index chunk =
      x.tape ? TapeAccess::content(*x.tape).chunk : chunk_from(first, x.transition.transition(), x.K.cols(), x.options);
  Adjoint<Scalar> adjoint = adjoint_of(x);
  const CheckpointSource<Scalar> states{load, x.tape ? x.tape->states() : 1, x.tape ? x.tape->tokens_between() : 0,
                                        adjoint};
  const bool turns = x.transition.transition().key_action() == KeyAction::turn;
  const auto set_gauge_at = [&](StateContent<Scalar>& at, bool from_frame) {
    at.sums.settle();
    set_gauge<Scalar, F>(x.transition, at.sums, adjoint, call.buffers.state.turns, from_frame);
  };
  if (turns && !adjoint.has_gauge) {
    StateContent<Scalar> last = first;
    Pass::from_states(of_pass, call, states, chunk, last, BackwardPart::absorb);
    set_gauge_at(last, true);
  }
  StateContent<Scalar> at = turns ? first : std::move(first);
  Pass::from_states(of_pass, call, states, chunk, at);
  if (turns) set_gauge_at(first, false);
  if (x.d_state) StateGradientAccess::content(*x.d_state) = std::move(adjoint);
}

/// Gradients of calls of a feature map under any transition, compiled once for a scalar type.
template <class Scalar, FeatureMap F>
struct GradientCalls {
  using Inputs = VjpInputs<Scalar, F>;

  /// Throws what the form does, and what is wrong beside; before anything is touched.
  static void check(Form form, const Inputs& x);
  /// Adds to the gradients of a checked call: of the attention form, or else of the chunked one.
  static void run(Form form, const Inputs& x, const VjpResults<Scalar>& to, VjpWorkspace<Scalar>& work);
};

template <class Scalar, FeatureMap F>
void GradientCalls<Scalar, F>::check(Form form, const Inputs& x) {
  check_call<F::score>(x.transition.transition(), x.Q, x.K, x.V, x.options);
  check_rows("dY", x.dY, x.Q, x.V);
  if (x.options.diagnostics != nullptr)
    raise<InvalidArgument>("options: diagnostics are of rows, ask the form for them; gradients have none");
  if (x.options.check_finite) check_finite("dY", x.dY);
  if (form == Form::attention) {
    static_cast<void>(rows_of_tape(x));
  } else if constexpr (FiniteFeatureMap<F>) {
    if (x.tape) {
      check_tape(x);
    } else {
      check_state(x.state, x.feature, x.transition.transition(), x.Q, x.V);
      check_state_mask(x.options.mask);
    }
    if (x.d_state) check_state_gradient(x);
  }
}

template <class Scalar, FeatureMap F>
void GradientCalls<Scalar, F>::run(Form form, const Inputs& x, const VjpResults<Scalar>& to,
                                   VjpWorkspace<Scalar>& work) {
  with_backward_call(x, to, work, [&](BackwardCall<Scalar> call) {
    if (form == Form::attention) {
      call.saved = rows_of_tape(x);
      BackwardPasses<Scalar, InterfaceOf<Scalar, F>>::attention(pass_feature<Scalar>(x.feature), call);
    } else if constexpr (FiniteFeatureMap<F>) {
      go_back_by_chunks(x, call);
    }
  });
}

}  // namespace SYMPOW_NAMESPACE::detail
