// What the recurrent and the chunked form share: their checks and their call.
#pragma once

#include <sympow/attention/call_checks.hpp>
#include <sympow/attention/output.hpp>
#include <sympow/attention/workspace.hpp>
#include <sympow/core/visitor.hpp>
#include <sympow/detail/factored_transition.hpp>
#include <sympow/detail/forms.hpp>

namespace SYMPOW_NAMESPACE {

/// Whether a feature map has the recurrent and the chunked form under a transition: φ is finite, if the transition
/// mixes channels as a Householder chain does φ(x) = x, and the transition can move a state.
template <class F, class A>
inline constexpr bool has_state_forms =
    FiniteFeatureMap<F> && (A::key_action != KeyAction::mix || detail::keys_are_features<F>) && MovesStates<A>;

/// What `cheapest_form` and `cheapest_chunk` ask of a call of T tokens with keys in R^d and values in R^e, that has no
/// mask and neither begins with a state nor leaves one: say so in `is_full`, `from_nothing` and `keeps_state` if it
/// does.
template <FeatureMap F, Transition A>
[[nodiscard]] ProblemShape head_shape([[maybe_unused]] const F& feature, const A&, Index T, Index d, Index e) {
  ProblemShape shape{.T = T, .d = d, .e = e, .action = A::key_action};
  if constexpr (has_state_forms<F, A>) {
    try {
      shape.D = static_cast<double>(feature.dimension(d));
    } catch (const DimensionOverflow&) {  // more than a state can have
    }
  }
  return shape;
}

namespace detail {

/// Throws `InterruptedState`, `ShapeMismatch`, `FeatureMismatch` or `FrameMismatch` unless the state fits the call.
template <class Scalar, class F, class A, class Q, class V>
void check_state(const State<Scalar, F>& state, const F& feature, const A& transition, const Q& queries,
                 const V& values) {
  check_whole(state);
  check_size("rows of Q", queries.rows(), state.key_dimension(), "key dimension of the state");
  check_size("rows of V", values.rows(), state.value_dimension(), "value dimension of the state");
  if (!same_feature(state.feature(), feature))
    raise<FeatureMismatch>("the state was built with another feature map than that of the call; use state.feature()");
  transition.check_frame(state.frame(), queries.rows());
  if constexpr (A::key_action == KeyAction::mix)
    if (!state.log_channels().isZero(0))
      raise<FrameMismatch>(
          "the state was built under channel decay, the transition is a Householder chain; the two do not commute");
  if constexpr (A::key_action == KeyAction::scale)
    if (StateAccess::content(state).frames.have_mixed())
      raise<FrameMismatch>(
          "the state was built under a Householder chain, the transition is a channel decay; the two do not commute");
}

/// Whether a feature map has a state; false after a sentence.
template <class F>
constexpr bool check_finite_map() {
  static_assert(FiniteFeatureMap<F>,
                "this feature map (Exponential, or one without dimension and embed) has no finite embedding, hence no "
                "state: it has the "
                "attention form only");
  return FiniteFeatureMap<F>;
}

/// Whether a transition can move a state of a feature map; false after a sentence that says why not.
template <FeatureMap F, Transition A>
constexpr bool check_moves() {
  constexpr bool is_small = A::key_action != KeyAction::mix || keys_are_features<F>;
  static_assert(
      is_small,
      "a Householder chain multiplies the state by a matrix in key space; lifted to the embedding of a power it "
      "would be D x D at every token: use the attention form, or Linear");
  constexpr bool mixes = A::key_action == KeyAction::mix, scales = A::key_action == KeyAction::scale;
  static_assert(!mixes || HasApplyToKeys<A>,
                "a state form needs apply_to_keys(Segment, Batch<S> K) of a transition that mixes channels, K <- (A_a "
                "... A_b)^T K; "
                "without it there is the attention form");
  static_assert(
      !mixes || HasApplyToState<A>,
      "a state form needs apply_to_state(Segment, Batch<S> X) of a transition that mixes channels, X <- X A_a ... A_b; "
      "without it there is the attention form");
  static_assert(
      !scales || HasChannelTotals<A>,
      "a state form needs log_channel_totals(Segment, Eigen::VectorXd&) of a transition that scales channels, the "
      "sums of their log gates; without it there is the attention form");
  return is_small && MovesStates<A>;
}

/// Throws `InvalidArgument` unless a state form goes with a mask.
inline void check_state_mask(const Mask& mask) {
  if (mask.offset != 0)
    raise<InvalidArgument>("options: the mask has the offset ", mask.offset, "; a state form takes none, ",
                           mask.is_full ? "use the attention form" : "absorb the earlier keys first");
}

/// Whether a state form goes with these types; false after a sentence.
template <FeatureMap F, Transition A, class Q, class K, class V, class Scalar, class G>
constexpr bool check_state_form() {
  if constexpr (check_state_type<typename Q::Scalar, F, Scalar, G>())
    return check_types<F, A, Q, K, V>() && check_moves<F, A>();
  else
    return false;
}

/// Checks a call and hands it to `engine`. Nothing is touched if a check throws. Without Y the call has no rows: its
/// queries are not looked at.
template <class F, class A, class Scalar>
void run_state_form(RowKind kind, const F& feature, const A& transition,
                    const std::type_identity_t<ConstBatch<Scalar>>& Q,
                    const std::type_identity_t<ConstBatch<Scalar>>& K,
                    const std::type_identity_t<ConstBatch<Scalar>>& V, State<Scalar, F>& state,
                    std::type_identity_t<OptionalRef<Batch<Scalar>>> Y,
                    std::type_identity_t<OptionalRef<Workspace<Scalar>>> workspace, const Options& options,
                    const std::type_identity_t<Visitor<const ForwardCall<Scalar>&>>& engine) {
  if (!workspace) {
    Workspace<Scalar> own;
    return run_state_form(kind, feature, transition, Q, K, V, state, Y, own, options, engine);
  }
  const MatrixView<const Scalar> queries(Q), keys(K), values(V);
  check_call(transition, queries, keys, values, options);
  check_state(state, feature, transition, queries, values);
  check_state_mask(options.mask);
  if (Y) check_output(*Y, queries, keys, values);
  if (options.diagnostics != nullptr) reset(*options.diagnostics, Y ? Q.cols() : 0);
  const MatrixView<Scalar> rows = Y ? MatrixView<Scalar>(*Y) : MatrixView<Scalar>(nullptr, 0, 0);
  const FactoredTransition<Scalar, F, A> factored(transition);
  auto& content = StateAccess::content(state);
  const Index tokens = content.frames.tokens;
  const double log_decay = content.frames.log_decay;
  ForwardCall<Scalar> call{factored.view(),       kind,    options, queries, keys, values, rows,
                           memory_of(*workspace), &content};
  call.has_queries = static_cast<bool>(Y);
  engine(call);
  factored.restore(content.frames, log_decay, content.frames.tokens - tokens);
  content.interrupted = false;
}

/// The recurrent or the chunked form of all heads of a group; Q and Y are those of its first.
template <class F, class A, class Scalar>
void run_group(Form form, RowKind kind, const F& feature, const A& transition,
               const std::type_identity_t<ConstBatch<Scalar>>& Q, const std::type_identity_t<ConstBatch<Scalar>>& K,
               const std::type_identity_t<ConstBatch<Scalar>>& V, State<Scalar, F>& state,
               std::type_identity_t<Batch<Scalar>> Y, Workspace<Scalar>& workspace, const Options& options,
               const HeadGroup& group) {
  run_state_form(kind, feature, transition, Q, K, V, state, Y, workspace, options, [&](ForwardCall<Scalar> call) {
    call.group = group;
    if (form == Form::recurrent)
      StateForms<Scalar, F>::recurrent(feature, call);
    else
      StateForms<Scalar, F>::chunked(feature, call);
  });
}

}  // namespace detail
}  // namespace SYMPOW_NAMESPACE
