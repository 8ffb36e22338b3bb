// Calls of the forms: their scratch memory, where they write, their checks, and then the pass.
#pragma once

#include <algorithm>
#include <cmath>
#include <concepts>
#include <limits>
#include <optional>
#include <vector>

#include <sympow/attention/call_checks.hpp>
#include <sympow/attention/tape.hpp>
#include <sympow/core/concepts.hpp>
#include <sympow/core/memory_layout.hpp>
#include <sympow/core/optional_ref.hpp>
#include <sympow/detail/forward.hpp>

namespace SYMPOW_NAMESPACE {

namespace detail {

/// The buffers behind workspaces; only the passes know them.
struct WorkspaceAccess {
  static auto& forward(auto& workspace) { return workspace.forward_; }
  static auto& backward(auto& workspace) { return workspace.backward_; }
};

/// Of calls that keep nothing for their gradients.
struct NoTape {};

/// `has_state_forms` of a call, whose types are forgotten.
template <FeatureMap F>
[[nodiscard]] bool goes_by_states(const F& feature, KeyAction action, bool moves_states) {
  const bool keys_are_features = F::score == Score::power && degree_in(feature) == 1;
  return has_states(feature) && (action != KeyAction::mix || keys_are_features) && moves_states;
}

template <FeatureMap F>
[[nodiscard]] ProblemShape head_shape(const F& feature, bool has_states, KeyAction action, Index T, Index d, Index e) {
  ProblemShape shape{.T = T, .d = d, .e = e, .action = action};
  if constexpr (has_embedding<F>) {
    try {
      if (has_states) shape.D = static_cast<double>(feature.dimension(d));
    } catch (const DimensionOverflow&) {  // more than a state can have
    }
  }
  return shape;
}

}  // namespace detail

// ---- The scratch memory of the forms

/// Scratch of one call at a time; keep it to reuse its memory. It holds nothing that outlives a call: any form, feature
/// map and shape may use the same one in turn. Once it has seen the largest call, calls allocate nothing.
template <class Scalar>
class Workspace {
 public:
  Workspace() = default;
  Workspace(const Workspace&) = default;
  Workspace(Workspace&&) = default;
  Workspace& operator=(Workspace&&) = default;
  /// As big as another one, or as it was where memory ends.
  Workspace& operator=(const Workspace& other) { return *this = Workspace(other); }
  ~Workspace() = default;

 private:
  friend detail::WorkspaceAccess;

  detail::ForwardBuffers<Scalar> forward_;
};

/// One workspace for every thread, grown by the calls that use it; keep it to reuse its memory.
template <class Scalar>
using Workspaces = std::vector<Workspace<Scalar>>;

// ---- Where a call writes its rows

/// What a call writes: a matrix Y or, if its gradients are wanted later, `{Y, tape}`, where the tape keeps of the
/// forward pass what the backward pass would have to compute again. Y is column-major with one token a column; it may
/// be a block or a map.
template <class Scalar, class Tape = detail::NoTape>
class Output {
 public:
  /// Y, and a tape if it is given.
  template <MatrixExpression X>
    requires(!std::same_as<std::remove_cvref_t<X>, Output>)
  Output(X&& Y, OptionalRef<Tape> tape = {})  // NOLINT(google-explicit-constructor): a matrix is an output
      : rows_(writable(Y)), tape_(tape) {}

  [[nodiscard]] Batch<Scalar> rows() const { return rows_; }      ///< Y
  [[nodiscard]] OptionalRef<Tape> tape() const { return tape_; }  ///< what keeps the forward pass, if it is kept

 private:
  template <class X>
  static Batch<Scalar> writable(X& Y) {
    constexpr bool can_be_written = std::is_convertible_v<X&, Batch<Scalar>>;
    static_assert(can_be_written,
                  "an output is written in place: it is column-major, one token a column, and has the scalar type of "
                  "queries, keys and values; of a row-major T x e matrix give the transpose");
    if constexpr (can_be_written)
      return Y;
    else
      return Eigen::Map<Matrix<Scalar>>(nullptr, 0, 0);
  }

  Batch<Scalar> rows_;
  OptionalRef<Tape> tape_;
};

// ---- Which forms there are

/// Whether a feature map has the recurrent and the chunked form under a transition: φ is finite, if the transition
/// mixes channels as a Householder chain does φ(x) = x, and the transition can move a state.
template <class F, class A>
inline constexpr bool has_state_forms =
    FiniteFeatureMap<F> && (A::key_action != KeyAction::mix || detail::keys_are_features<F>) && MovesStates<A>;

/// What `cheapest_form` and `cheapest_chunk` ask of a call of T tokens with keys in R^d and values in R^e, that has no
/// mask and neither begins with a state nor leaves one: say so in `is_full`, `from_nothing` and `keeps_state` if it
/// does.
template <FeatureMap F, Transition A>
[[nodiscard]] ProblemShape head_shape(const F& feature, const A&, Index T, Index d, Index e) {
  return detail::head_shape(feature, has_state_forms<F, A>, A::key_action, T, d, e);
}

// ---- Calls of the forms: their checks, and then the pass

namespace detail {

/// The content of an empty state with the default tail.
template <class Scalar, FeatureMap F>
StateContent<Scalar> empty_state(const F& feature, Index d, Index e) {
  return empty_state<Scalar>(feature, d, e, usual_tail(entries_are_nonnegative(feature)));
}

/// Throws `InterruptedState`, `ShapeMismatch`, `FeatureMismatch` or `FrameMismatch` unless the state fits the call.
/// Without one a call begins from an empty state: throws `DimensionOverflow` if there can be none of these sizes.
template <class Content, FeatureMap F, class Scalar>
void check_state(const Given<Content>& given, const F& feature, const TransitionView<Scalar>& transition, Index d,
                 Index e) {
  if (!given) {
    static_cast<void>(state_dimension<Scalar>(feature, d, e, usual_tail(entries_are_nonnegative(feature))));
    return transition.check_frame(Frame{}, d);
  }
  const StateContent<Scalar>& state = *given;
  check_whole(state);
  check_size("rows of Q", d, state.key_dimension(), "key dimension of the state");
  check_size("rows of V", e, state.sums.value_rows(), "value dimension of the state");
  if (!is_feature(given.feature, feature))
    raise<FeatureMismatch>("the state was built with another feature map than that of the call; use state.feature()");
  transition.check_frame(state.frames.end, d);
  if (transition.key_action() == KeyAction::mix && !state.frames.log_channels.isZero(0))
    raise<FrameMismatch>(
        "the state was built under channel decay, the transition is a Householder chain; the two do not commute");
  if (transition.key_action() == KeyAction::scale && state.frames.have_mixed())
    raise<FrameMismatch>(
        "the state was built under a Householder chain, the transition is a channel decay; the two do not commute");
}

/// Whether a feature map has states, which a transition can move; false after a sentence.
template <FeatureMap F, Transition A>
constexpr bool check_moves() {
  static_assert(has_state_forms<F, A>,
                "a state form needs a feature map with a finite embedding, which has dimension and embed (Exponential "
                "has none), and a transition that moves states: one that scales channels has log_channel_totals; one "
                "that mixes them has apply_to_keys and apply_to_state, and goes with a linear feature map, as its lift "
                "to a power would be D x D at every token. Without these there is the attention form");
  return has_state_forms<F, A>;
}

/// Throws `InvalidArgument` unless a state form goes with a mask.
inline void check_state_mask(const Mask& mask) {
  if (!mask.goes_with_states())
    raise<InvalidArgument>(
        "options: ", in_words(mask), " does not go with a state; ",
        mask.is_full || mask.offset == 0 ? "use the attention form" : "absorb the earlier keys first");
}

/// Whether a state form goes with these types; false after a sentence.
template <FeatureMap F, Transition A, class Q, class K, class V, class Scalar, class G>
constexpr bool check_state_form() {
  constexpr bool fits = std::is_same_v<typename Q::Scalar, Scalar> && std::is_same_v<F, G>;
  static_assert(
      fits,
      "the state is one of another feature map or scalar type than the call: State<Scalar, Feature>, with the "
      "scalar type of the keys and the type of the feature map");
  if constexpr (fits)
    return check_types<F, A, Q, K, V>() && check_moves<F, A>();
  else
    return false;
}

/// The arguments of a form: those of its pass, a state, that of all heads of a group, and a tape.
template <class Scalar>
struct FormInputs {
  ForwardCall<Scalar> call;
  Given<StateContent<Scalar>> state = {};  ///< of a state form; without one it begins from nothing
  Given<TapeContent<Scalar>> tape = {};    ///< filled by attention, and by chunks under causal()
};

/// f(the state of a call, or an empty one, which is dropped).
template <class Scalar, FeatureMap F>
void with_state(const F& feature, const FormInputs<Scalar>& x, const auto& f) {
  if (x.state) return f(*x.state);
  StateContent<Scalar> own = empty_state<Scalar>(feature, x.call.Q.rows(), x.call.V.rows());
  own.frames.drop_product();
  f(own);
}

/// The rows of a state form. The state keeps the decays of the transition that was given; the pass may see the largest
/// gate of every token apart from it, see `with_pass_call`.
template <class Scalar, FeatureMap F>
void go_on_from(StateContent<Scalar>& state, Form form, const F& feature, const TransitionView<Scalar>& given,
                const ForwardCall<Scalar>& call, ForwardBuffers<Scalar>& memory) {
  Frames<Scalar>& frames = state.frames;
  const Index before = frames.tokens;
  double log_decay = frames.log_decay;
  ForwardPasses<Scalar, F>::from_state(form, feature, call, state, memory);
  if (call.transition != &given) {
    for (Index t = 0; t < frames.tokens - before; ++t) log_decay += given.log_decay(t);
    frames.log_decay = log_decay;
    const double log_gates = given.total_max_log_gate();
    if (given.key_action() == KeyAction::mix)
      frames.key_product *= static_cast<Scalar>(std::exp(log_gates));
    else
      frames.log_channels.array() += log_gates;
  }
  state.interrupted = false;
}

/// go_on() goes on from a state by chunks; the tape keeps states on the way.
template <class Scalar>
void record_chunks(TapeContent<Scalar>& kept, const StateContent<Scalar>& state, const TransitionView<Scalar>& given,
                   ForwardCall<Scalar>& call, const auto& go_on) {
  const Index T = call.K.cols(), chunk = chunk_from(state, given, T, call.options);
  auto& states = kept.states;
  call.options.chunk = kept.chunk = chunk, kept.tokens = T, kept.action = given.key_action();
  kept.between = chunk * std::clamp<Index>(call.options.checkpoint, 1, std::numeric_limits<Index>::max() / chunk);
  if (!states.empty() && !states.front().has_sizes_of(state)) states.clear();
  std::size_t n = 0;
  const auto keep = [&](Index t) {
    if (t % kept.between != 0) return;
    if (n == states.size()) states.push_back(state);
    states[n] = state;
    states[n++].interrupted = false;  // as the call is
  };
  const Visitor<Index> visit_chunk(keep);
  call.visit_chunk = &visit_chunk;
  go_on();
  if (T == 0) keep(0);
  states.erase(states.begin() + static_cast<std::ptrdiff_t>(n), states.end());
  kept.frame = state.frames.end;
  kept.form = Form::chunked;
}

/// Calls under any transition, compiled once for a scalar type and a feature map as passes see it.
template <class Scalar, FeatureMap F>
struct FormCalls {
  using Inputs = FormInputs<Scalar>;

  /// Throws what is wrong with a call, before anything is touched.
  static void check(Form form, const F& feature, const Inputs& x);
  /// A checked call.
  static void attention(const F& feature, const Inputs& x, Workspace<Scalar>& workspace);
  static void from_state(Form form, const F& feature, const Inputs& x, Workspace<Scalar>& workspace);
  /// The form that a batch has chosen and checked.
  static void run(Form form, const F& feature, const Inputs& x, Workspace<Scalar>& workspace) {
    form == Form::attention ? attention(feature, x, workspace) : from_state(form, feature, x, workspace);
  }
};

template <class Scalar, FeatureMap F>
void FormCalls<Scalar, F>::check(Form form, const F& feature, const Inputs& x) {
  const auto& [call, state, tape] = x;
  const Options& options = call.options;
  check_call<F::score>(call);
  if constexpr (has_embedding<F>)
    if (form != Form::attention) {
      check_state(state, feature, *call.transition, call.Q.rows(), call.V.rows());
      check_state_mask(options.mask);
    }
  if (call.has_queries) {
    check_rows("Y", call.Y, call.Q, call.V);
    check_outputs({{"Y", layout_of(call.Y)}},
                  {{"Q", layout_of(call.Q)}, {"K", layout_of(call.K)}, {"V", layout_of(call.V)}});
  }
  if (tape && form == Form::chunked) {
    if (options.mask != causal())
      raise<InvalidArgument>("chunked: a tape goes with the mask causal(), of queries that stand at their keys");
    if (options.diagnostics != nullptr)
      raise<InvalidArgument>("chunked: diagnostics are given by calls without a tape");
  }
}

/// f(the call as its pass takes it): the largest gate of every token is a scalar one where the slowest channels of
/// powers decay by more than e^-27 over the call.
template <class Scalar, FeatureMap F>
void with_pass_call(const F& feature, ForwardCall<Scalar> call, const auto& f) {
  if (call.options.diagnostics != nullptr) reset(*call.options.diagnostics, call.has_queries ? call.Q.cols() : 0);
  const int P = degree_in(feature);
  const bool is_slow = F::score == Score::power && P * call.transition->total_max_log_gate() < least_log_decay;
  const auto slow = is_slow ? call.transition->factor_out_max_gate(P) : nullptr;
  if (slow) call.transition = slow.get();
  f(call);
}

template <class Scalar, FeatureMap F>
void FormCalls<Scalar, F>::attention(const F& feature, const Inputs& x, Workspace<Scalar>& workspace) {
  with_pass_call(feature, x.call, [&](ForwardCall<Scalar>& call) {
    auto& memory = WorkspaceAccess::forward(workspace);
    if (!x.tape) return ForwardPasses<Scalar, F>::attention(feature, call, memory);
    TapeContent<Scalar>& kept = *x.tape;
    kept.sums.resize(static_cast<std::size_t>(call.Y.cols()));
    resize_safely(kept.Y, call.Y.rows(), call.Y.cols());
    call.sums = kept.sums.data();
    ForwardPasses<Scalar, F>::attention(feature, call, memory);
    kept.Y = call.Y;
    kept.kind = call.rows, kept.scale = call.options.scale, kept.mask = call.options.mask;
    kept.form = Form::attention;
  });
}

template <class Scalar, FeatureMap F>
void FormCalls<Scalar, F>::from_state(Form form, const F& feature, const Inputs& x, Workspace<Scalar>& workspace) {
  if constexpr (has_embedding<F>)
    with_pass_call(feature, x.call, [&](ForwardCall<Scalar>& call) {
      with_state(feature, x, [&](StateContent<Scalar>& state) {
        const TransitionView<Scalar>& given = *x.call.transition;
        const auto go_on = [&] { go_on_from(state, form, feature, given, call, WorkspaceAccess::forward(workspace)); };
        if (x.tape && form == Form::chunked && call.options.mask == causal())
          record_chunks(*x.tape, state, given, call, go_on);
        else
          go_on();
      });
    });
}

/// Checks a call and runs it. A form that is not asked for is not compiled. Without an output there are no rows.
template <Form form, class Scalar, FeatureMap F, Transition A, class StateType, class TapeType = NoTape>
void call_form(RowKind kind, const F& feature, const A& transition, const ConstBatch<Scalar>& Q,
               const ConstBatch<Scalar>& K, const ConstBatch<Scalar>& V, OptionalRef<StateType> state,
               OptionalRef<const Output<Scalar, TapeType>> output, OptionalRef<Workspace<Scalar>> workspace,
               const Options& options) {
  using Calls = FormCalls<Scalar, InterfaceOf<Scalar, F>>;
  const auto& of_passes = pass_feature<Scalar>(feature);
  const ViewOf<Scalar, A> view(transition);
  std::optional<Batch<Scalar>> rows;
  if (output) rows.emplace(output->rows());
  const MatrixView<Scalar> Y = rows ? MatrixView<Scalar>(*rows) : MatrixView<Scalar>(nullptr, 0, 0);
  FormInputs<Scalar> x{{kind, &view, Q, K, V, options, Y, static_cast<bool>(output)}, StateAccess::given(state)};
  constexpr bool can_keep = !std::is_same_v<TapeType, NoTape>;
  if constexpr (can_keep)
    if (output) x.tape = StateAccess::given(output->tape());
  Calls::check(form, of_passes, x);
  if constexpr (can_keep)
    if (x.tape) StateAccess::begin(*output->tape(), feature);
  std::optional<Workspace<Scalar>> own;
  Workspace<Scalar>& memory = workspace ? *workspace : own.emplace();
  if constexpr (form == Form::attention)
    Calls::attention(of_passes, x, memory);
  else
    Calls::from_state(form, of_passes, x, memory);
}

}  // namespace detail
}  // namespace SYMPOW_NAMESPACE
