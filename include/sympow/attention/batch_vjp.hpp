// Gradients of all heads of a batch in one call.
#pragma once

#include <algorithm>

#include <sympow/attention/attention_vjp.hpp>
#include <sympow/attention/forward_pass.hpp>
#include <sympow/attention/scan_vjp.hpp>

namespace SYMPOW_NAMESPACE {

/// Gradients in the parameters of a batch: of the transition of every head, in the order in which the batch was given
/// them, or would have been if it was given one for all; and of the scale, of all heads together.
template <class A>
struct BatchGradients {
  std::vector<typename A::Gradient> transitions = {};  ///< of every head
  double scale = 0;                                    ///< in `Options::scale`
};

namespace detail::inline SYMPOW_THREADS {

/// Where the gradients of a batch go.
template <class Scalar>
struct BatchResults {
  Heads<Scalar> dQ, dK, dV;

  /// Throws `ShapeMismatch` unless they have the heads, numbers and tokens of what they are of, and `InvalidArgument`
  /// where one begins where another array does; side by side in one array they may stand.
  void check(const BatchCall<Scalar, const Scalar>& call) const {
    check_apart<Scalar>({dQ.first(), dK.first(), dV.first()},
                        {call.Q.first(), call.K.first(), call.V.first(), call.Y.first()});
    check_alike("dQ", dQ, "Q", call.Q);
    check_alike("dK", dK, "K", call.K);
    check_alike("dV", dV, "V", call.V);
  }
  /// Zeros for the query heads of a key head, and their padding.
  void clear(Index b, Index key_head, Index most_in_group) const {
    for (Index h = key_head * most_in_group; h < (key_head + 1) * most_in_group; ++h)
      dQ.head(b, h).setZero(), dQ.padding(b, h).setZero();
    for (const auto* x : {&dK, &dV}) x->head(b, key_head).setZero(), x->padding(b, key_head).setZero();
  }

 private:
  static void check_alike(const std::string& name, const Heads<Scalar>& dx, const std::string& of,
                          const Heads<const Scalar>& x) {
    const auto agree = [&](const std::string& what, Index actual, Index expected) {
      check_size(what + name, actual, expected, "that of " + of);
    };
    agree("number of sequences of ", dx.sequences(), x.sequences());
    agree("number of heads of ", dx.heads(), x.heads());
    agree("dimension of ", dx.dimension(), x.dimension());
    for (Index b = 0; b < std::max(dx.sequences_of_other_lengths(), x.sequences_of_other_lengths()); ++b)
      agree("length of sequence " + std::to_string(b) + " in ", dx.length(b), x.length(b));
  }
};

/// Adds to the gradient of a state another one of the same.
template <class Scalar, class F>
void add_state_gradient(const F& feature, StateGradient<Scalar, F>& sum, const StateGradient<Scalar, F>& more) {
  AdjointContent<Scalar>& to = StateGradientAccess::content(sum);
  const AdjointContent<Scalar>& from = StateGradientAccess::content(more);
  FoldMemory<Scalar> memory;
  to.sums.add(feature, memory, from.sums, 0, from.sums.log_channels);
  if (from.gauge.size() != 0) to.gauge += from.gauge;  // none where nothing turns
  if (from.frame.size() != 0) to.frame += from.frame;
}

/// Initial states of a batch and the gradients of its final ones, which become those of the initial.
template <class States, class Adjoints>
struct BatchStates {
  const States& states;
  Adjoints& adjoints;
};

/// Checks all heads, then takes them back: the query heads of a key head one after the other, so that what they add to
/// its keys and values comes in order. `pass` is what the forward pass of a call without states has left, if it did.
template <class Normalization, class F, class Transitions, class Scalar, class States>
auto run_batch_vjp(const F& feature, const Transitions& given, BatchCall<Scalar, const Scalar> call,
                   const BatchResults<Scalar>& results, const States& states, VjpWorkspaces<Scalar>& workspaces,
                   const ForwardPass<Scalar, F>* pass = nullptr) {
  constexpr bool keeps_states = !std::same_as<States, NoStates>;
  call.name_of_Y = "dY";
  call.check();
  results.check(call);
  const Index B = call.Q.sequences(), most = call.most_in_group();
  if constexpr (keeps_states) {
    const Index of_queries = B * call.Q.heads(), of_keys = B * call.K.heads(),
                count = std::ranges::ssize(states.states);
    if (count == of_keys)
      call.group = most;
    else if (count != of_queries)
      raise<ShapeMismatch>("number of states is ", count, ", must be ", of_queries,
                           " (one a sequence and query head) or ", of_keys, " (one a sequence and key head)");
    check_size("number of states' gradients", std::ranges::ssize(states.adjoints), count, "that of the states");
    check_distinct("gradients of states", states.adjoints);
    check_state_mask(call.options.head.mask);
  }
  const auto transition_of = transitions_of(given, B, call.groups(), call.group);
  using A = std::remove_cvref_t<decltype(transition_of(0))>;
  constexpr bool has_states = has_state_forms<F, A>;
  if (!has_states && (keeps_states || (call.options.form != Form::attention && call.options.form != Form::automatic)))
    raise<InvalidArgument>("options: this feature map with this transition has the attention form only");
  if (keeps_states && call.options.form == Form::attention)
    raise<InvalidArgument>("options: the attention form has no states; leave them out, or take another form");

  const Options& options = call.options.head;
  const Index count = B * call.Q.heads();
  if (pass != nullptr) check_size("heads of the forward pass", pass->size(), count, "those of Q");
  // What head h has left, if it went by this form.
  const auto left_by = [&](Index b, Index h, Form form) {
    const auto* head =
        pass == nullptr ? nullptr : &ForwardPassAccess::heads(*pass)[static_cast<std::size_t>(b * call.Q.heads() + h)];
    return head != nullptr && head->form == form ? head : nullptr;
  };
  const auto known_rows = [&](Index b, Index h, const VjpArguments<Scalar>& x) {
    const auto* head = left_by(b, h, Form::attention);
    return head == nullptr ? KnownRows<Scalar>()
                           : RowSumsAccess::checked(head->rows, row_kind<Normalization, F>(), x.dY, options);
  };
  const auto arguments_of = [&](Index b, Index h) {
    const auto Q = call.Q.head(b, h), K = call.K.head(b, h / most), V = call.V.head(b, h / most),
               dY = call.Y.head(b, h);
    return VjpArguments<Scalar>{Q, K, V, dY};
  };
  const auto group_of = [&](Index b, Index h) { return (b * call.Q.heads() + h) / call.group; };
  const auto shape_of = [&](const A& transition, const VjpArguments<Scalar>& x) {
    HeadShape shape = head_shape(feature, transition, std::max(x.Q.cols(), x.K.cols()), x.Q.rows(), x.V.rows());
    shape.is_full = options.mask.is_full;
    shape.keeps_state = keeps_states;
    return shape;
  };
  BatchGradients<A> gradients;
  auto adjoints = [&] {  // copies, which take the place of those given if nothing fails
    if constexpr (keeps_states) {
      std::vector<StateGradient<Scalar, F>> copies;
      for (const auto& adjoint : states.adjoints) copies.push_back(adjoint);
      return copies;
    } else
      return NoStates{};
  }();
  Index all_tokens = 0;
  for (Index m = 0; m < B * call.Q.heads(); ++m) {
    const Index b = m / call.Q.heads(), h = m % call.Q.heads();
    naming_head(b, h, call.group, [&] {
      const A& transition = transition_of(group_of(b, h));
      const VjpArguments<Scalar> x = arguments_of(b, h);
      check_vjp_call(transition, x, options);
      const Index n = group_of(b, h);
      if constexpr (keeps_states)
        check_chunked_vjp(feature, transition, x, std::ranges::begin(states.states)[n],
                          adjoints[static_cast<std::size_t>(n)], options);
      all_tokens += x.Q.cols();
      static_cast<void>(known_rows(b, h, x));
      if constexpr (has_states)
        if (const auto* head = left_by(b, h, Form::chunked))
          check_checkpoints(head->checkpoints, feature, transition, x.K, x.V);
      if (h % call.group == 0)
        gradients.transitions.push_back(transition.zero_gradient(tokens_of(x.Q, x.K, options.mask)));
    });
  }
  std::vector<double> scales(static_cast<std::size_t>(count));
  const auto chunk_of_scan = [&](Index b, Index h) {
    return scans_back<F, A>
               ? scanned_chunk(shape_of(transition_of(group_of(b, h)), arguments_of(b, h)), all_tokens, call.options)
               : Index(0);
  };
  // The query heads of a key head: each from what its forward pass has left, or by its engine, run(transition,
  // arguments, results, state, its gradient).
  const auto take_back = [&](Index b, Index key_head, VjpWorkspace<Scalar>& work, const auto& run) {
    results.clear(b, key_head, most);
    for (Index h = key_head * most; h < (key_head + 1) * most; ++h) {
      const Index n = group_of(b, h);
      const A& transition = transition_of(n);
      const VjpArguments<Scalar> x = arguments_of(b, h);
      auto dQ = results.dQ.head(b, h), dK = results.dK.head(b, key_head), dV = results.dV.head(b, key_head);
      const VjpResults<Scalar, A> to{dQ, dK, dV, gradients.transitions[static_cast<std::size_t>(n)],
                                     scales[static_cast<std::size_t>(b * call.Q.heads() + h)]};
      if (!keeps_states && form_of(shape_of(transition, x), call.options) == Form::attention) {
        run_attention_vjp<Normalization>(feature, transition, x, to, work, options, known_rows(b, h, x));
        continue;
      }
      if constexpr (keeps_states) {
        const auto& state = std::ranges::begin(states.states)[n];
        auto& adjoint = adjoints[static_cast<std::size_t>(n)];
        if (h % call.group == 0) {
          run(transition, x, to, state, adjoint);
        } else {
          StateGradient<Scalar, F> own(feature, x.Q.rows(), x.V.rows());
          run(transition, x, to, state, own);
          add_state_gradient(feature, adjoint, own);
        }
      } else if constexpr (has_states) {
        StateGradient<Scalar, F> adjoint(feature, x.Q.rows(), x.V.rows());
        if (const auto* head = left_by(b, h, Form::chunked)) {
          run_chunked_vjp<Normalization>(feature, transition, x, to, head->checkpoints, adjoint, work, options);
        } else {
          const State<Scalar, F> state(feature, x.Q.rows(), x.V.rows(), 0);
          run(transition, x, to, state, adjoint);
        }
      }
    }
  };
  const int threads = threads_of(call.options.threads);
  parallel_for(B * call.K.heads(), threads, workspaces, [&](Index n, VjpWorkspace<Scalar>& work) {
    const Index b = n / call.K.heads(), key_head = n % call.K.heads();
    if (chunk_of_scan(b, key_head * most) > 0) return;
    take_back(b, key_head, work,
              [&](const A& transition, const auto& x, const auto& to, const auto& state, auto& adjoint) {
                run_chunked_vjp<Normalization>(feature, transition, x, to, state, adjoint, work, options);
              });
  });
  for (Index n = 0; n < B * call.K.heads(); ++n) {
    const Index b = n / call.K.heads(), key_head = n % call.K.heads();
    Options scanned = options;
    if (scanned.chunk = chunk_of_scan(b, key_head * most); scanned.chunk == 0) continue;
    if constexpr (scans_back<F, A>)
      take_back(b, key_head, workspaces[0],
                [&](const A& transition, const auto& x, const auto& to, const auto& state, auto& adjoint) {
                  ScanVjp<Normalization, Scalar, F, A>(feature, transition, x, to, workspaces, scanned, threads)
                      .run(state, adjoint);
                });
  }
  for (const double scale : scales) gradients.scale += scale;
  if constexpr (keeps_states) std::ranges::move(adjoints, std::ranges::begin(states.adjoints));
  return gradients;
}

}  // namespace detail::inline SYMPOW_THREADS

inline namespace SYMPOW_THREADS {

/// The gradients of `attend` without states, from dY = ∂loss/∂Y.
///
///     dQ: H heads of d,   dK: H_kv of d,   dV: H_kv of e,   each as Q, K, V; the gradients of transitions are returned
///
/// Keys and values get the sum of what the query heads of their group say, in order. Gradients are 0 where Q or K is
/// padding. Threads run over sequences and key heads; a head that `attend` would cut into segments is cut here too.
/// Results are the same bit for bit for any number of threads. Throws as `attend`, before anything is touched,
/// `ShapeMismatch` for gradients of another shape and `InvalidArgument` for such in the memory of an argument.
template <class Normalization = DefaultNormalization, FeatureMap F, class Transitions, class Scalar>
auto attend_vjp(const F& feature, const Transitions& transitions, Heads<const std::type_identity_t<Scalar>> Q,
                Heads<const std::type_identity_t<Scalar>> K, Heads<const std::type_identity_t<Scalar>> V,
                Heads<const std::type_identity_t<Scalar>> dY, Heads<Scalar> dQ, Heads<std::type_identity_t<Scalar>> dK,
                Heads<std::type_identity_t<Scalar>> dV, VjpWorkspaces<std::type_identity_t<Scalar>>& workspaces,
                const BatchOptions& options = {}) {
  const detail::NoStates none;
  return detail::run_batch_vjp<Normalization>(feature, transitions,
                                              detail::BatchCall<Scalar, const Scalar>{Q, K, V, dY, options},
                                              detail::BatchResults<Scalar>{dQ, dK, dV}, none, workspaces);
}

/// The same from the forward pass that `attend` has left. Throws `ShapeMismatch`, too, for one of another shape, and
/// `InvalidArgument` for one of another normalisation, scale or mask.
template <class Normalization = DefaultNormalization, FeatureMap F, class Transitions, class Scalar>
auto attend_vjp(const F& feature, const Transitions& transitions, Heads<const std::type_identity_t<Scalar>> Q,
                Heads<const std::type_identity_t<Scalar>> K, Heads<const std::type_identity_t<Scalar>> V,
                Heads<const std::type_identity_t<Scalar>> dY, const ForwardPass<std::type_identity_t<Scalar>, F>& pass,
                Heads<Scalar> dQ, Heads<std::type_identity_t<Scalar>> dK, Heads<std::type_identity_t<Scalar>> dV,
                VjpWorkspaces<std::type_identity_t<Scalar>>& workspaces, const BatchOptions& options = {}) {
  const detail::NoStates none;
  return detail::run_batch_vjp<Normalization>(feature, transitions,
                                              detail::BatchCall<Scalar, const Scalar>{Q, K, V, dY, options},
                                              detail::BatchResults<Scalar>{dQ, dK, dV}, none, workspaces, &pass);
}

/// The same from states and the gradients of the states that `attend` has left; these become the gradients of the
/// states given, or stay as they were if the call throws: it works on a copy of them. B H of each, or B H_kv where a
/// group shares one.
template <class Normalization = DefaultNormalization, FeatureMap F, class Transitions, class Scalar,
          detail::RangeOf<const State<Scalar, F>> States, detail::RangeOf<StateGradient<Scalar, F>> Adjoints>
auto attend_vjp(const F& feature, const Transitions& transitions, Heads<const std::type_identity_t<Scalar>> Q,
                Heads<const std::type_identity_t<Scalar>> K, Heads<const std::type_identity_t<Scalar>> V,
                Heads<const std::type_identity_t<Scalar>> dY, const States& states, Adjoints& adjoints,
                Heads<Scalar> dQ, Heads<std::type_identity_t<Scalar>> dK, Heads<std::type_identity_t<Scalar>> dV,
                VjpWorkspaces<std::type_identity_t<Scalar>>& workspaces, const BatchOptions& options = {}) {
  return detail::run_batch_vjp<Normalization>(
      feature, transitions, detail::BatchCall<Scalar, const Scalar>{Q, K, V, dY, options},
      detail::BatchResults<Scalar>{dQ, dK, dV}, detail::BatchStates<States, Adjoints>{states, adjoints}, workspaces);
}

/// What is no call of it, with a sentence why.
template <class Normalization = DefaultNormalization, FeatureMap F, class Transitions, class... Arguments>
  requires(sizeof...(Arguments) > 0 && detail::BatchVjpMistakes<F, Arguments...>::any)
auto attend_vjp(const F&, const Transitions&, Arguments&&...) {
  return detail::BatchVjpMistakes<F, Arguments...>::explain();
}

}  // namespace SYMPOW_THREADS
}  // namespace SYMPOW_NAMESPACE
