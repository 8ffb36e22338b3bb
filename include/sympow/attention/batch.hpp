// All heads of a batch of sequences in one call, in a form that is chosen at run time.
#pragma once

#include <algorithm>
#include <concepts>
#include <ranges>
#include <utility>
#include <vector>

#include <sympow/attention/attention.hpp>
#include <sympow/attention/batch_transitions.hpp>
#include <sympow/attention/heads.hpp>
#include <sympow/attention/mistakes.hpp>
#include <sympow/attention/recurrent.hpp>
#include <sympow/attention/scan.hpp>

namespace SYMPOW_NAMESPACE {

/// Run-time choices of a batch.
struct BatchOptions {
  Form form = Form::automatic;  ///< of all heads, or each its own
  int threads = 0;              ///< at most so many, 0 for all; more than one where the program is compiled with OpenMP
  Options head = {};            ///< of every head; diagnostics are given by the calls of one head
};

namespace detail::inline SYMPOW_THREADS {

/// The form of a head. One whose queries stand elsewhere than its keys has no state form.
inline Form form_of(const HeadShape& shape, const BatchOptions& options) {
  if (options.form == Form::automatic && !shape.keeps_state && options.head.mask.offset != 0) return Form::attention;
  return options.form == Form::automatic ? cheapest_form(shape, options.head.costs) : options.form;
}

/// The chunk of a head that goes through `scan`, else 0. It has more than a quarter of all tokens, in many segments,
/// states that are small beside it, and work for some milliseconds. Nothing but shapes decides, so that results are the
/// same for any number of threads.
inline Index scanned_chunk(HeadShape shape, Index all_tokens, const BatchOptions& options) {
  shape.from_nothing = false;  // its segments go on
  const Index T = shape.T;
  if (options.head.mask != causal() || T <= all_tokens / 4 ||
      static_cast<double>(T / 8 * (shape.d + shape.e) / (shape.e + 1)) < shape.D ||
      form_of(shape, options) != Form::chunked)
    return 0;
  constexpr double some_milliseconds = 1e9;  // operations
  const Index chunk = chunk_of(options.head, shape);
  if (cost_of_chunks(shape, static_cast<double>(chunk), options.head.costs) < some_milliseconds) return 0;
  return T / 16 >= scanned_segment(static_cast<Index>(shape.D), chunk) ? chunk : 0;
}

/// The arguments of a batch but its transitions and states, checked against each other. Y are the rows, or what goes
/// with them.
template <class Scalar, class Row = Scalar>
struct BatchCall {
  Heads<const Scalar> Q, K, V;
  Heads<Row> Y;
  BatchOptions options;
  Index group = 1;  ///< query heads that share a state
  const char* name_of_Y = "Y";

  void check() const {
    const auto agree = [](const char* what, const char* of, Index actual, Index expected, const char* whose) {
      if (actual != expected)
        raise<ShapeMismatch>(what, " of ", of, " is ", actual, ", must be ", expected, " (that of ", whose, ")");
    };
    const auto lengths = [&](const char* name, const auto& x, const char* other, const auto& y, const char* unless) {
      for (Index b = 0; b < std::max(x.sequences_of_other_lengths(), y.sequences_of_other_lengths()); ++b)
        if (x.length(b) != y.length(b))
          raise<ShapeMismatch>("length of sequence ", b, " in ", name, " is ", x.length(b), ", must be ", y.length(b),
                               " (that in ", other, ")", unless);
    };
    agree("number of sequences", "K", K.sequences(), Q.sequences(), "Q");
    agree("number of sequences", "V", V.sequences(), Q.sequences(), "Q");
    agree("number of sequences", name_of_Y, Y.sequences(), Q.sequences(), "Q");
    if (options.head.mask == causal()) lengths("K", K, "Q", Q, " unless options.head.mask says otherwise");
    lengths("V", V, "K", K, "");
    lengths(name_of_Y, Y, "Q", Q, "");
    agree("number of heads", "V", V.heads(), K.heads(), "K");
    agree("number of heads", name_of_Y, Y.heads(), Q.heads(), "Q");
    agree("dimension", "K", K.dimension(), Q.dimension(), "Q");
    agree("dimension", name_of_Y, Y.dimension(), V.dimension(), "V");
    if (Q.heads() > 0 && (K.heads() == 0 || Q.heads() % K.heads() != 0))
      raise<ShapeMismatch>("number of heads of Q is ", Q.heads(), ", must be a multiple of that of K, which is ",
                           K.heads());
    if (options.threads < 0) raise<InvalidArgument>("options: threads is ", options.threads, ", must not be negative");
    if (options.head.diagnostics != nullptr)
      raise<InvalidArgument>("options: a batch gives no diagnostics; call a head by itself for its own");
  }

  /// Query heads that read the same keys, H / H_kv.
  [[nodiscard]] Index most_in_group() const { return std::max<Index>(1, Q.heads() / std::max<Index>(1, K.heads())); }
  /// Groups of a sequence.
  [[nodiscard]] Index groups() const { return Q.heads() / group; }
  [[nodiscard]] HeadGroup head_group() const { return {group, Q.to_next_head(), Y.to_next_head()}; }
  /// Zeros where the heads of the group of head h have none of the tokens.
  void clear_padding(Index b, Index h) const {
    for (Index r = 0; r < group; ++r) Y.padding(b, h + r).setZero();
  }

  /// f(b, h, q, k, v, y) for the first query head h of group n. The heads of a group stand together: h reads key head h
  /// / (H / H_kv).
  template <class Function>
  void with_head(Index n, const Function& f) const {
    const Index b = n / groups(), h = n % groups() * group, key_head = h / most_in_group();
    f(b, h, Q.head(b, h), K.head(b, key_head), V.head(b, key_head), Y.head(b, h));
  }
};

/// In the place of states where there are none.
struct NoStates {};

/// Where heads leave nothing for gradients.
struct LeaveNothing {
  void begin(Index) const {}
  bool run(const auto&...) const { return false; }
};

/// Checks all heads, then runs them: those without states by `leave`, where it does that.
template <class Normalization, class F, class Transitions, class Scalar, class States, class Leave = LeaveNothing>
void run_batch(const F& feature, const Transitions& given, BatchCall<Scalar> call, States& states,
               Workspaces<Scalar>& workspaces, const Leave& leave = {}) {
  constexpr bool keeps_states = !std::same_as<States, NoStates>;
  call.check();
  const Index B = call.Q.sequences();
  if constexpr (keeps_states) {
    const Index given_states = std::ranges::ssize(states), of_keys = B * call.K.heads();
    if (given_states == of_keys)
      call.group = call.most_in_group();
    else if (given_states != B * call.Q.heads())
      raise<ShapeMismatch>("number of states is ", given_states, ", must be ", B * call.Q.heads(),
                           " (one a sequence and query head) or ", of_keys, " (one a sequence and key head)");
    check_distinct("states", states);
  }
  const auto transition_of = transitions_of(given, B, call.groups(), call.group);
  using A = std::remove_cvref_t<decltype(transition_of(0))>;
  constexpr bool has_states = has_state_forms<F, A>;
  const Index count = B * call.groups();
  if (keeps_states && call.options.form == Form::attention)
    raise<InvalidArgument>("options: the attention form has no states; leave them out, or take another form");
  if (!has_states && (keeps_states || (call.options.form != Form::attention && call.options.form != Form::automatic)))
    raise<InvalidArgument>("options: this feature map with this transition has the attention form only");
  if (keeps_states || call.options.form == Form::recurrent || call.options.form == Form::chunked)
    check_state_mask(call.options.head.mask);

  Options options = call.options.head;
  const auto shape_of = [&](Index n) {
    const Index b = n / call.groups(), tokens = std::max(call.Q.length(b), call.K.length(b));
    HeadShape shape = head_shape(feature, transition_of(n), tokens, call.Q.dimension(), call.V.dimension());
    shape.is_full = options.mask.is_full;
    shape.keeps_state = keeps_states;
    if constexpr (keeps_states) shape.from_nothing = std::ranges::begin(states)[n].tokens() == 0;
    return shape;
  };
  Index all_tokens = 0;
  for (Index n = 0; n < count; ++n)
    call.with_head(n, [&](Index b, Index h, const auto& Q, const auto& K, const auto& V, const auto&) {
      naming_head(b, h, call.group, [&] {
        check_call(transition_of(n), Q, K, V, options);
        if constexpr (keeps_states) check_state(std::ranges::begin(states)[n], feature, transition_of(n), Q, V);
        const bool makes_state = form_of(shape_of(n), call.options) != Form::attention && !keeps_states;
        if constexpr (has_states)
          if (makes_state) StateAccess::check_sizes<State<Scalar, F>>(feature, Q.rows(), V.rows());
      });
      for (Index r = 1; options.check_finite && r < call.group; ++r)
        naming_head(b, h + r, 1, [&] { check_finite("Q", call.Q.head(b, h + r)); });
      all_tokens += Q.cols();
    });
  options.check_finite = false;  // it has been done
  const auto chunk_of_scan = [&](Index n) {
    return F::score == Score::power ? scanned_chunk(shape_of(n), all_tokens, call.options) : 0;
  };

  const auto with_state = [&]([[maybe_unused]] Index n, const auto& f) {
    if constexpr (keeps_states) {
      f(std::ranges::begin(states)[n]);
    } else if constexpr (has_states) {
      State<Scalar, F> state(feature, call.Q.dimension(), call.V.dimension());
      state.drop_key_product();
      f(state);
    }
  };
  const int threads = threads_of(call.options.threads);
  leave.begin(count);
  parallel_for(count, threads, workspaces, [&](Index n, Workspace<Scalar>& work) {
    if (chunk_of_scan(n) > 0) return;
    const Form form = form_of(shape_of(n), call.options);
    call.with_head(n, [&](Index b, Index h, const auto& Q, const auto& K, const auto& V, auto Y) {
      call.clear_padding(b, h);
      if constexpr (!keeps_states) {
        if (leave.run(n, form, feature, transition_of(n), Q, K, V, Y, work, options)) return;
        if (form == Form::attention)
          return attention<Normalization>(feature, transition_of(n), Q, K, V, Y, work, options);
      }
      with_state(n, [&](auto& state) {
        run_group<Normalization>(form, feature, transition_of(n), Q, K, V, state, Y, work, options, call.head_group());
      });
    });
  });
  for (Index n = 0; n < count; ++n)
    if (options.chunk = chunk_of_scan(n); options.chunk > 0)
      call.with_head(n, [&](Index b, Index h, const auto& Q, const auto& K, const auto& V, auto Y) {
        call.clear_padding(b, h);
        with_state(n, [&](auto& state) {
          if constexpr (has_states && F::score == Score::power)
            scan<Normalization, Scalar>(feature, transition_of(n), Q, K, V, state, Y, workspaces, options, threads,
                                        call.head_group());
        });
      });
}

}  // namespace detail::inline SYMPOW_THREADS

inline namespace SYMPOW_THREADS {

/// All heads of a batch of sequences, each by the form that the options name or that its own shape makes the cheapest,
/// going on from its state.
///
///     y_bh = form(feature, A_bh, q_bh, k_bg, v_bg, state_bh),   g = h / (H / H_kv),   b < B, h < H
///
/// Shapes: Q: B sequences of H heads, d numbers a token; K: H_kv heads of d, V: H_kv of e; Y: H of e. H is a multiple
/// of H_kv: query heads of a group stand together. Every sequence has its own length, 0 allowed, the same in all four;
/// their orders in memory may differ. Y is 0 where Q is padding, which neither weighs nor decays. `transitions` is one
/// for all heads, a container of B H, b H + h being that of head h of sequence b, or a callable on (b, h); `states` a
/// container of B H states in the same order, each left after its sequence's own tokens. If the query heads of a group
/// have the same gates, they can share one state: pass B H_kv states, in the order b H_kv + g. Keys are then embedded
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
/// without OpenMP.
///
/// Throws `ShapeMismatch`, `InvalidArgument`, and with the sequence and head in the message what the form throws for
/// one, and what the callable throws, as the type that it is; nothing has then been touched. Memory may end later:
/// states of heads that were done have moved, see `State::interrupted`. Calls allocate transitions of a callable,
/// segments' states, and workspaces until each thread has seen the largest head.
template <class Normalization = DefaultNormalization, FeatureMap F, class Transitions, class Scalar,
          detail::StatesOf<Scalar, F> States>
void attend(const F& feature, const Transitions& transitions, Heads<const std::type_identity_t<Scalar>> Q,
            Heads<const std::type_identity_t<Scalar>> K, Heads<const std::type_identity_t<Scalar>> V, States&& states,
            Heads<Scalar> Y, Workspaces<std::type_identity_t<Scalar>>& workspaces, const BatchOptions& options = {}) {
  detail::run_batch<Normalization>(feature, transitions, detail::BatchCall<Scalar>{Q, K, V, Y, options}, states,
                                   workspaces);
}

/// The same without states: the attention form, or another one from empty states that are dropped.
template <class Normalization = DefaultNormalization, FeatureMap F, class Transitions, class Scalar>
void attend(const F& feature, const Transitions& transitions, Heads<const std::type_identity_t<Scalar>> Q,
            Heads<const std::type_identity_t<Scalar>> K, Heads<const std::type_identity_t<Scalar>> V, Heads<Scalar> Y,
            Workspaces<std::type_identity_t<Scalar>>& workspaces, const BatchOptions& options = {}) {
  detail::NoStates none;
  detail::run_batch<Normalization>(feature, transitions, detail::BatchCall<Scalar>{Q, K, V, Y, options}, none,
                                   workspaces);
}

/// What is no call of it, with a sentence why.
template <class Normalization = DefaultNormalization, FeatureMap F, class Transitions, class Q, class K, class V,
          class A = BatchOptions, class B = BatchOptions, class C = BatchOptions, class D = BatchOptions>
  requires(detail::BatchMistakes<F, const Q&, const K&, const V&, A, B, C, D>::any)
void attend(const F&, const Transitions&, const Q&, const K&, const V&, A&& = {}, B&& = {}, C&& = {}, D&& = {}) {
  detail::BatchMistakes<F, const Q&, const K&, const V&, A, B, C, D>::explain();
}

}  // namespace SYMPOW_THREADS
}  // namespace SYMPOW_NAMESPACE

#ifdef SYMPOW_COMPILED_FORMS
#include <sympow/attention/compiled_forms.hpp>  // what is not compiled here
#endif
