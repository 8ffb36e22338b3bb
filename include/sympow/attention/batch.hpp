// All heads of a batch of sequences in one call, in a form that is chosen at run time.
#pragma once

#include <sympow/attention/batch_call.hpp>
#include <sympow/attention/compiled_forms.hpp>
#include <sympow/attention/scan.hpp>

namespace SYMPOW_NAMESPACE {

/// The arguments of `attend` by name.
template <class Scalar, FeatureMap F>
struct AttendCall {
  Heads<const Scalar> Q, K, V;
  RangeRef<typename detail::StateOf<Scalar, F>::type> states = {};  ///< one a query head or key head, or none
  Heads<Scalar> Y;
  OptionalRef<Tapes<Scalar, F>> tapes = {};         ///< keep the forward pass for `attend_vjp`
  OptionalRef<Workspaces<Scalar>> workspaces = {};  ///< scratch; the call makes its own if they are left out
  BatchOptions options = {};
};

namespace detail {

/// Batches of a feature map under any transitions, compiled once for a scalar type, and for any program's threads.
template <class Scalar, FeatureMap F>
struct BatchForms {
  /// Checks all heads, then runs them.
  static void run(RowKind kind, const F& feature, BatchTransitions<Scalar>& transitions,
                  const AttendCall<Scalar, F>& call, const Threads& threads);

 private:
  /// A head without a state, by a form that has been chosen.
  static void run_stateless(Form form, const FormInputs<Scalar, F>& x, const Output<Scalar, Tape<Scalar, F>>& Y,
                            Workspace<Scalar>& work);
};

template <class Scalar, FeatureMap F>
void BatchForms<Scalar, F>::run_stateless(Form form, const FormInputs<Scalar, F>& x,
                                          const Output<Scalar, Tape<Scalar, F>>& Y, Workspace<Scalar>& work) {
  using Forms = FormCalls<Scalar, F>;
  if (form == Form::attention) {
    Forms::run_attention(x, Y, work);
  } else if constexpr (FiniteFeatureMap<F>) {
    State<Scalar, F> state(x.feature, x.Q.rows(), x.V.rows());
    state.drop_key_product();
    if (form == Form::chunked && x.options.mask == causal()) return Forms::chunked(x, state, Y, work);
    Batch<Scalar> rows = Y.rows();
    Forms::run_from_state(form, x, state, rows, work);
  }
}

template <class Scalar, FeatureMap F>
void BatchForms<Scalar, F>::run(RowKind kind, const F& feature, BatchTransitions<Scalar>& transitions,
                                const AttendCall<Scalar, F>& x, const Threads& given) {
  const CheckedBatch batch(feature, transitions, BatchCall<Scalar>{x.Q, x.K, x.V, x.Y, x.options}, x.states);
  check_outputs({{"Y", x.Y.layout()}}, {{"Q", x.Q.layout()}, {"K", x.K.layout()}, {"V", x.V.layout()}});
  if (x.states && x.tapes)
    raise<InvalidArgument>("attend: states and tapes are given; tapes are of calls without states");
  const auto& call = batch.call;
  Workspaces<Scalar> own;
  Workspaces<Scalar>& workspaces = x.workspaces ? *x.workspaces : own;
  Options options = call.options.head;
  options.check_finite = false;  // it has been done
  const Index count = call.all_groups();
  const Threads threads = batch.useful(given);
  if (x.tapes) {
    x.tapes->resize(static_cast<std::size_t>(count));
    for (auto& tape : *x.tapes) TapeAccess::begin(tape);
  }
  parallel_for(count, threads, workspaces, [&](Index n, Workspace<Scalar>& work) {
    const GroupPlan plan = batch.plan(n);
    if (plan.scanned_chunk > 0) return;
    call.with_head(n, [&](Index b, Index h, const auto& Q, const auto& K, const auto& V, auto Y) {
      call.clear_padding(b, h);
      OptionalRef<Tape<Scalar, F>> tape;
      if (x.tapes) tape = (*x.tapes)[static_cast<std::size_t>(n)];
      transitions.with(n, [&](const TransitionView<Scalar>& transition) {
        if (!batch.keeps_states())
          return run_stateless(plan.form, {kind, feature, transition, Q, K, V, options}, {Y, tape}, work);
        if constexpr (FiniteFeatureMap<F>) {
          Batch<Scalar> rows = Y;
          FormCalls<Scalar, F>::run_from_state(
              plan.form, {kind, feature, transition, Q, K, V, options, call.head_group()}, x.states[n], rows, work);
        }
      });
    });
  });
  if constexpr (FiniteFeatureMap<F> && F::score == Score::power)
    for (Index n = 0; n < count; ++n)
      if (options.chunk = batch.plan(n).scanned_chunk; options.chunk > 0)
        call.with_head(n, [&](Index b, Index h, const auto& Q, const auto& K, const auto& V, auto Y) {
          call.clear_padding(b, h);
          const auto run = [&](State<Scalar, F>& state) {
            transitions.with(n, [&](const TransitionView<Scalar>& transition) {
              scan<F, Scalar>({kind, feature, transition, Q, K, V, options, call.head_group()}, state, Y, workspaces,
                              threads);
            });
          };
          if (batch.keeps_states()) return run(x.states[n]);
          State<Scalar, F> state(feature, Q.rows(), V.rows());
          state.drop_key_product();
          run(state);
        });
}

template <class Scalar, FeatureMap F, class Given>
void run_batch(RowKind kind, const F& feature, const Given& given, const AttendCall<Scalar, F>& call,
               const Threads& threads) {
  BatchTransitionsOf<Scalar, TransitionOfBatch<Given>> transitions(given);
  BatchForms<Scalar, F>::run(kind, feature, transitions, call, threads);
}

}  // namespace detail

inline namespace SYMPOW_THREADS {

/// All heads of a batch of sequences, each by the form that the options name or that its own shape makes the cheapest,
/// going on from its state.
///
///     y_bh = form(feature, A_bh, q_bh, k_bg, v_bg, state_bh),   g = h / (H / H_kv),   b < B, h < H
///
///     attend(feature, transitions, {.Q = Q, .K = K, .V = V, .Y = Y});
///
/// Shapes: Q: B sequences of H heads, d numbers a token; K: H_kv heads of d, V: H_kv of e; Y: H of e. H is a multiple
/// of H_kv: query heads of a group stand together. Every sequence has its own length, 0 allowed, the same in all four;
/// their orders in memory may differ. Y shares no memory with the others, and is 0 where Q is padding, which neither
/// weighs nor decays. `transitions` is one for all heads, a container of B H, b H + h being that of head h of sequence
/// b, or a callable on (b, h); `states` a container of B H states in the same order, each left after its sequence's own
/// tokens; without them nothing came before. If the query heads of a group have the same gates, they can share one
/// state: pass B H_kv states, in the order b H_kv + g. Keys are then embedded
/// and folded once for the group, and transitions are indexed by key head. The number of states alone decides what a
/// callable is given:
///
///     [&](Index b, Index h) { return decay(gates[b * H + h]); }        B H states, or none: (sequence, query head)
///     [&](Index b, Index g) { return decay(gates[b * H_kv + g]); }     B H_kv states: (sequence, key head)
///
/// Threads run over sequences and heads. A head with more than a quarter of all tokens is cut into segments, whose
/// states are merged, see `merge`: for powers in the chunked form, at T of 16 segments of √(32 D) tokens or more, 8
/// states' worth of tokens and 10^9 operations. Results depend on shapes, on the options, on which states are empty and
/// at e = 1 on how far values lie apart, and not on threads: they are the same bit for bit for any number of them, and
/// without OpenMP. Tapes, of calls without states, keep of the forward pass what `attend_vjp` needs; Y is that
/// without.
///
/// Throws `ShapeMismatch`, `InvalidArgument`, and with the sequence and head in the message what the form throws for
/// one, and what the callable throws, as the type that it is; nothing has then been touched. Memory may end later:
/// states of heads that were done have moved, see `State::interrupted`. Calls allocate transitions of a callable,
/// segments' states, and workspaces until each thread has seen the largest head.
template <class Normalization = DefaultNormalization, FeatureMap F, class Transitions>
void attend(const F& feature, const Transitions& transitions, const AttendCall<float, F>& call) {
  detail::run_batch(detail::row_kind<Normalization, F>(), feature, transitions, call,
                    detail::threads_of_program(call.options.threads));
}
/// Overload for double.
template <class Normalization = DefaultNormalization, FeatureMap F, class Transitions>
void attend(const F& feature, const Transitions& transitions, const AttendCall<double, F>& call) {
  detail::run_batch(detail::row_kind<Normalization, F>(), feature, transitions, call,
                    detail::threads_of_program(call.options.threads));
}

}  // namespace SYMPOW_THREADS
}  // namespace SYMPOW_NAMESPACE

/// Batches of a feature map, compiled in one place as `SYMPOW_FORMS`.
#define SYMPOW_BATCHES(LINKAGE, Scalar, ...) LINKAGE template struct sympow::detail::BatchForms<Scalar, __VA_ARGS__>;

#ifdef SYMPOW_COMPILED_FORMS
SYMPOW_FEATURE_MAPS(SYMPOW_BATCHES, extern, float)
SYMPOW_FEATURE_MAPS(SYMPOW_BATCHES, extern, double)
#endif
