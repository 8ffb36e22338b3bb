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
struct StateGradientAccess;
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

namespace detail {
struct StateGradientAccess {
  static auto& content(auto& gradient) { return gradient.content_; }
  /// Its sums, that all decay is in. Costs a copy.
  static auto sums(const auto& gradient) { return gradient.settled(); }
};
}  // namespace detail

// ---- Calls of gradients: what they are given and give, and what they check beside their form

template <class Scalar>
class VjpWorkspace;

namespace detail {
template <class Scalar>
BackwardBuffers<Scalar>& backward_buffers_of(VjpWorkspace<Scalar>& workspace) {
  return workspace.memory_;
}
}  // namespace detail

/// Scratch of one call at a time, as `Workspace` is for forms, which it is as well.
template <class Scalar>
class VjpWorkspace : public Workspace<Scalar> {
  friend detail::BackwardBuffers<Scalar>& detail::backward_buffers_of<Scalar>(VjpWorkspace<Scalar>& workspace);

  detail::BackwardBuffers<Scalar> memory_;
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

/// A transition and the gradient in its parameters that calls add to, their types forgotten.
template <class Scalar>
class VjpTransition {
 public:
  VjpTransition() = default;
  VjpTransition(const VjpTransition&) = delete;
  VjpTransition& operator=(const VjpTransition&) = delete;
  virtual ~VjpTransition() = default;

  [[nodiscard]] virtual const TransitionView<Scalar>& given() const = 0;
  /// As the engine of gradients of φ^P sees it, P = `degree`: with the gates of slowest channels as scalar ones, see
  /// `factor_out_max_gate`. 0 of other scores: as it is.
  [[nodiscard]] virtual const TransitionView<Scalar>& there(int degree) = 0;
  /// The way back from there, which adds to the gradient: the flow through a channel is that through all of a_t.
  [[nodiscard]] virtual VjpView<Scalar>& back() = 0;

  /// For a transition of `HasParts`: segments of so many tokens, each with a gradient of its own.
  virtual void begin_parts(Index tokens, Index tokens_of_part) = 0;
  virtual void with_part(Index n, const Visitor<VjpTransition&>& visit) = 0;
  virtual void join_parts() = 0;  ///< adds their gradients to that of the whole
};

template <class Scalar, Transition A>
class VjpTransitionOf final : public VjpTransition<Scalar> {
 public:
  using Gradient = typename A::Gradient;

  VjpTransitionOf(const A& transition, Gradient& gradient)
      : transition_(transition), gradient_(gradient), view_(transition) {}

  [[nodiscard]] const TransitionView<Scalar>& given() const override { return view_; }
  [[nodiscard]] const TransitionView<Scalar>& there([[maybe_unused]] int degree) override {
    if constexpr (HasMaxGates<A>)
      if (degree > 0) {
        factored_ = max_gates_factored_out<Scalar>(transition_, degree);
        back_.emplace(factored_->transition(), gradient_);
        return *factored_;
      }
    return view_;
  }
  [[nodiscard]] VjpView<Scalar>& back() override {
    if (!back_) back_.emplace(transition_, gradient_);
    return *back_;
  }

  void begin_parts(Index tokens, Index tokens_of_part) override {
    for (Index begin = 0; begin < tokens; begin += tokens_of_part) {
      const Index size = std::min(tokens_of_part, tokens - begin);
      parts_.emplace_back(transition_.zero_gradient(size), Segment{begin, size});
    }
  }
  void with_part([[maybe_unused]] Index n, [[maybe_unused]] const Visitor<VjpTransition<Scalar>&>& visit) override {
    if constexpr (HasParts<A>) {
      auto& [gradient, segment] = parts_[static_cast<std::size_t>(n)];
      const A part = transition_.part(segment);
      VjpTransitionOf of_part(part, gradient);
      visit(of_part);
    }
  }
  void join_parts() override {
    if constexpr (HasParts<A>)
      for (const auto& [gradient, segment] : parts_) transition_.join(gradient, segment, gradient_);
  }

 private:
  const A& transition_;
  Gradient& gradient_;
  ViewOf<Scalar, A> view_;
  std::unique_ptr<const GatedView<Scalar, A>> factored_;
  std::optional<VjpViewOf<Scalar, A>> back_;
  std::vector<std::pair<Gradient, Segment>> parts_;
};

/// Whether a call has gradients; false after a sentence that names what is missing. Scores that are direct need no φ.
template <class F, class A, class Scalar, bool is_direct = false>
constexpr bool check_vjp() {
  static_assert(
      HasVjp<A, Scalar>,
      "gradients need a transition with a way back: Gradient, zero_gradient, add_decay_flows, to_segment_frame_vjp "
      "and apply_to_queries_vjp, see transition/segment_vjp.hpp");
  constexpr bool embeds = F::score != Score::embedded || FeatureMapWithVjp<F> || (is_direct && KernelWithSlope<F>);
  static_assert(embeds,
                "gradients need embed_vjp(x, y, dy, dx) of a feature map with an embedded score; those of attention "
                "kappa_slope(s), if it has kappa(s)");
  return HasVjp<A, Scalar> && embeds;
}

/// The inputs of a gradient call.
template <class Scalar>
struct VjpArguments {
  MatrixView<const Scalar> Q, K, V, dY;
};

/// Where gradients are added or, if nothing is there and it does not `add`, written.
template <class Scalar>
struct VjpResults {
  MatrixView<Scalar> dQ, dK, dV;
  double& scale;
  bool adds = true;
};

/// Gradients in the memory of others, which are then empty; or new ones. Throws `InvalidArgument`, before anything is
/// touched, if that memory is an argument's.
template <class Scalar, class A>
Gradients<Scalar, A> take_memory(OptionalRef<Gradients<Scalar, A>> reuse, const VjpArguments<Scalar>& of) {
  if (!reuse) return {};
  check_outputs({{"dQ", layout_of(reuse->Q)}, {"dK", layout_of(reuse->K)}, {"dV", layout_of(reuse->V)}},
                {{"Q", layout_of(of.Q)}, {"K", layout_of(of.K)}, {"V", layout_of(of.V)}, {"dY", layout_of(of.dY)}});
  return std::move(*reuse);
}

/// Gives gradients their sizes, 0 if they are added to.
template <class Scalar, class A>
VjpResults<Scalar> begin_gradients(Gradients<Scalar, A>& gradients, const A& transition, const VjpArguments<Scalar>& of,
                                   const Options& options, bool adds) {
  gradients.transition = transition.zero_gradient(tokens_of(of.Q, of.K, options.mask));
  resize_safely(gradients.Q, of.Q.rows(), of.Q.cols());
  resize_safely(gradients.K, of.K.rows(), of.K.cols());
  resize_safely(gradients.V, of.V.rows(), of.V.cols());
  for (auto* x : {&gradients.Q, &gradients.K, &gradients.V})
    if (adds) x->setZero();
  gradients.scale = 0;
  return {gradients.Q, gradients.K, gradients.V, gradients.scale, adds};
}

/// Throws as a form does, `ShapeMismatch` unless dY has the shape of the rows, and `InvalidArgument` for diagnostics.
template <FeatureMap F, class Scalar>
void check_vjp_call(const TransitionView<Scalar>& transition, const VjpArguments<Scalar>& x, const Options& options) {
  check_call<F>(transition, x.Q, x.K, x.V, options);
  check_rows("dY", x.dY, x.Q, x.V);
  if (options.diagnostics != nullptr)
    raise<InvalidArgument>("options: diagnostics are of rows, ask the form for them; gradients have none");
  if (options.check_finite) check_finite("dY", x.dY);
}

/// The call in the terms of its engine.
template <class F, class Scalar>
BackwardCall<Scalar> backward_call(RowKind kind, VjpTransition<Scalar>& transition, const VjpArguments<Scalar>& x,
                                   const VjpResults<Scalar>& to, VjpWorkspace<Scalar>& workspace,
                                   const Options& options) {
  const TransitionView<Scalar>& there = transition.there(F::score == Score::power ? degree_of<F> : 0);
  return {there,
          transition.back(),
          kind,
          options,
          x.Q,
          x.K,
          x.V,
          x.dY,
          to.dQ,
          to.dK,
          to.dV,
          to.scale,
          to.adds,
          memory_of(workspace),
          backward_buffers_of(workspace)};
}

// ---- Calls of gradients: their checks, and then the pass

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
