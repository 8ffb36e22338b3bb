// Gradients of all heads of a batch in one call.
#pragma once

#include <sympow/attention/batch.hpp>
#include <sympow/attention/compiled_gradients.hpp>
#include <sympow/attention/scan_vjp.hpp>

namespace SYMPOW_NAMESPACE {

/// The arguments of `attend_vjp` by name.
template <class Scalar, FeatureMap F>
struct AttendVjpCall {
  Heads<const Scalar> Q, K, V, dY;
  RangeRef<const typename detail::StateOf<Scalar, F>::type> states = {};  ///< those that `attend` began with
  /// The gradients of the states after the last tokens, and then those of the states before the first. 0 if left out.
  RangeRef<typename detail::StateOf<Scalar, F>::gradient> d_states = {};
  OptionalRef<const Tapes<Scalar, F>> tapes = {};  ///< that `attend` has filled
  Heads<Scalar> dQ, dK, dV;
  OptionalRef<VjpWorkspaces<Scalar>> workspaces = {};  ///< scratch; the call makes its own if they are left out
  BatchOptions options = {};
};

/// Gradients in the parameters of a batch: of the transition of every head, in the order in which the batch was given
/// them, or would have been if it was given one for all; and of the scale, of all heads together.
template <class A>
struct BatchGradients {
  std::vector<typename A::Gradient> transitions = {};  ///< of every head
  double scale = 0;                                    ///< in `Options::scale`

  /// In the parameters of a factor of transition n, or of that transition itself: `of<Decay>(n).log_gamma`.
  template <class Factor>
  [[nodiscard]] const auto& of(Index n) const {
    return detail::gradient_of<Factor, A>(transitions[static_cast<std::size_t>(n)]);
  }
};

namespace detail {

/// The transitions of a batch with their gradients.
template <class Scalar>
class VjpTransitions : public BatchTransitions<Scalar> {
 public:
  [[nodiscard]] virtual bool have_parts() const = 0;
  /// Gives the next transition a gradient of 0, of so many tokens.
  virtual void add_gradient(Index tokens) = 0;
  virtual void with_gradient(Index n, const Visitor<VjpTransition<Scalar>&>& visit) = 0;
};

template <class Scalar, class Given, class A = TransitionOfBatch<Given>>
class VjpTransitionsOf final : public BatchTransitionsOf<Scalar, Given, VjpTransitions<Scalar>> {
 public:
  VjpTransitionsOf(const Given& given, std::vector<typename A::Gradient>& gradients)
      : BatchTransitionsOf<Scalar, Given, VjpTransitions<Scalar>>(given), gradients_(gradients) {}

  [[nodiscard]] bool have_parts() const override { return HasParts<A>; }
  void add_gradient(Index tokens) override {
    gradients_.push_back(this->transition(std::ssize(gradients_)).zero_gradient(tokens));
  }
  void with_gradient(Index n, const Visitor<VjpTransition<Scalar>&>& visit) override {
    VjpTransitionOf<Scalar, A> of_call(this->transition(n), gradients_[static_cast<std::size_t>(n)]);
    visit(of_call);
  }

 private:
  std::vector<typename A::Gradient>& gradients_;
};

/// Adds to the gradient of a state another one of the same.
template <class Scalar, class F>
void add_state_gradient(const F& feature, StateGradient<Scalar, F>& sum, const StateGradient<Scalar, F>& more) {
  Adjoint<Scalar>& to = StateGradientAccess::content(sum);
  const Adjoint<Scalar>& from = StateGradientAccess::content(more);
  FoldBuffers<Scalar> memory;
  add_sums<Scalar>(feature, memory, from.sums, 0, from.sums.log_channels, to.sums);
  if (from.gauge.size() != 0) to.gauge += from.gauge;  // none where nothing turns
  if (from.frame.size() != 0) to.frame += from.frame;
}

/// The gradients of a batch. The query heads of a key head go back one after the other, so that what they add to its
/// keys and values comes in order.
template <class Scalar, FeatureMap F>
class BatchVjp {
  using StateType = typename StateOf<Scalar, F>::type;
  using StateGradientType = typename StateOf<Scalar, F>::gradient;
  using Batch = CheckedBatch<F, Scalar, const Scalar, const StateType>;
  using Calls = GradientCalls<Scalar, F>;

 public:
  /// Throws what the forward pass would, and what is wrong with the gradients' memory, states and tape.
  BatchVjp(RowKind kind, const F& feature, VjpTransitions<Scalar>& transitions, const AttendVjpCall<Scalar, F>& x,
           const Threads& threads)
      : kind_(kind),
        feature_(feature),
        transitions_(transitions),
        x_(x),
        batch_(feature, transitions, BatchCall<Scalar, const Scalar>{x.Q, x.K, x.V, x.dY, x.options}, x.states),
        call_(batch_.call),
        threads_(batch_.useful(threads)) {
    check_gradients();
    check_states();
    if (x_.tapes) check_size("number of tapes", std::ssize(*x_.tapes), heads(), "that of query heads");
    for (Index n = 0; n < x_.d_states.size(); ++n) d_states_.push_back(x_.d_states[n]);
    for (Index n = 0; n < call_.all_groups(); ++n) {
      const auto head = call_.first_head(n);
      transitions_.add_gradient(tokens_of(head.Q, head.K, x_.options.head.mask));
    }
    for (Index n = 0; n < heads(); ++n)
      with_head_context(n / x_.Q.heads(), n % x_.Q.heads(), call_.group, [&] {
        with_inputs(n, [&](const VjpInputs<Scalar, F>& inputs) { Calls::check_backward(form_of_head(n), inputs); });
      });
  }

  /// Returns the gradient in the scale.
  double run() {
    scales_.assign(static_cast<std::size_t>(heads()), 0);
    VjpWorkspaces<Scalar> own;
    VjpWorkspaces<Scalar>& workspaces = x_.workspaces ? *x_.workspaces : own;
    const Index key_heads = x_.Q.sequences() * x_.K.heads();
    parallel_for(key_heads, threads_, workspaces, [&](Index n, VjpWorkspace<Scalar>& work) {
      if (chunk_of_scan(n) > 0) return;
      run_key_head(n, [&](Index head, const VjpInputs<Scalar, F>& inputs, const VjpResults<Scalar>& to) {
        Calls::run(form_of_head(head), inputs, to, work);
      });
    });
    if constexpr (FiniteFeatureMap<F> && F::score == Score::power)
      for (Index n = 0; n < key_heads; ++n)
        if (const Index chunk = chunk_of_scan(n); chunk > 0)
          run_key_head(n, [&](Index, VjpInputs<Scalar, F>& inputs, const VjpResults<Scalar>& to) {
            inputs.options.chunk = chunk;
            ScanVjp<Scalar, F>(inputs, to, workspaces, threads_).run();
          });
    for (Index n = 0; n < x_.d_states.size(); ++n) x_.d_states[n] = std::move(d_states_[static_cast<std::size_t>(n)]);
    double scale = 0;
    for (const double of_head : scales_) scale += of_head;
    return scale;
  }

 private:
  [[nodiscard]] Index heads() const { return x_.Q.sequences() * x_.Q.heads(); }
  [[nodiscard]] Form form_of_head(Index head) const { return batch_.plan(head / call_.group).form; }
  // Of the query heads of key head n, all by the same form; 0 if there is none.
  [[nodiscard]] Index chunk_of_scan(Index n) const {
    const bool can = transitions_.have_parts() && call_.heads_of_key() > 0;
    return can ? batch_.plan(n * call_.heads_of_key() / call_.group).scanned_chunk : 0;
  }

  /// Throws `ShapeMismatch` unless gradients have the heads, numbers and tokens of what they are of, and
  /// `InvalidArgument` if they share memory.
  void check_gradients() const {
    const auto check = [](const char* name, const Heads<Scalar>& dx, const char* of, const Heads<const Scalar>& x) {
      check_same("number of sequences", name, dx.sequences(), of, x.sequences());
      check_same("number of heads", name, dx.heads(), of, x.heads());
      check_same("dimension", name, dx.dimension(), of, x.dimension());
      check_same_lengths(name, dx, of, x);
    };
    check("dQ", x_.dQ, "Q", x_.Q);
    check("dK", x_.dK, "K", x_.K);
    check("dV", x_.dV, "V", x_.V);
    check_outputs({{"dQ", x_.dQ.layout()}, {"dK", x_.dK.layout()}, {"dV", x_.dV.layout()}},
                  {{"Q", x_.Q.layout()}, {"K", x_.K.layout()}, {"V", x_.V.layout()}, {"dY", x_.dY.layout()}});
  }
  void check_states() const {
    if (x_.states && x_.tapes)
      raise<InvalidArgument>("attend_vjp: states and tapes are given; tapes are of calls without states");
    if (!x_.d_states) return;
    if (!x_.states) raise<InvalidArgument>("attend_vjp: gradients of states are given, but no states");
    check_size("number of states' gradients", x_.d_states.size(), x_.states.size(), "that of the states");
    check_distinct("gradients of states", x_.d_states);
  }

  // f(inputs of a query head): with what it has left on its tape, if it went by the same form, and the copy of its
  // state's gradient, which takes the place of the one given if nothing fails.
  template <class Function>
  void with_inputs(Index head, const Function& f) {
    const Index n = head / call_.group;
    const auto x = call_.head(head / x_.Q.heads(), head % x_.Q.heads());
    transitions_.with_gradient(n, [&](VjpTransition<Scalar>& transition) {
      VjpInputs<Scalar, F> inputs{kind_, feature_, transition, x.Q, x.K, x.V, x.Y, x_.options.head, batch_.state(n)};
      if (x_.tapes)
        if (const auto& tape = (*x_.tapes)[static_cast<std::size_t>(head)]; tape.form() == form_of_head(head))
          inputs.tape = tape;
      if (x_.d_states) inputs.d_state = d_states_[static_cast<std::size_t>(n)];
      f(inputs);
    });
  }
  // run(head, its inputs, where its gradients go) for the query heads of key head n.
  template <class Run>
  void run_key_head(Index n, const Run& run) {
    const Index b = n / x_.K.heads(), key_head = n % x_.K.heads(), count = call_.heads_of_key();
    auto dK = x_.dK.head(b, key_head), dV = x_.dV.head(b, key_head);
    for (const auto* x : {&x_.dK, &x_.dV}) x->head(b, key_head).setZero(), x->padding(b, key_head).setZero();
    for (Index h = key_head * count; h < (key_head + 1) * count; ++h) {
      const Index head = b * x_.Q.heads() + h;
      auto dQ = x_.dQ.head(b, h);
      dQ.setZero(), x_.dQ.padding(b, h).setZero();
      const VjpResults<Scalar> to{dQ, dK, dV, scales_[static_cast<std::size_t>(head)]};
      with_inputs(head, [&](VjpInputs<Scalar, F>& inputs) {
        if constexpr (FiniteFeatureMap<F>)
          if (inputs.d_state && head % call_.group != 0) {  // the loss on the state is that of the first head
            StateGradientType& sum = *inputs.d_state;
            StateGradientType own(feature_, x_.Q.dimension(), x_.V.dimension());
            inputs.d_state = own;
            run(head, inputs, to);
            return add_state_gradient(feature_, sum, own);
          }
        run(head, inputs, to);
      });
    }
  }

  RowKind kind_;
  const F& feature_;
  VjpTransitions<Scalar>& transitions_;
  const AttendVjpCall<Scalar, F>& x_;
  Batch batch_;
  const BatchCall<Scalar, const Scalar>& call_;
  Threads threads_;
  std::vector<StateGradientType> d_states_;
  std::vector<double> scales_;
};

/// Batches of gradients of a feature map, compiled once for a scalar type, and for any program's threads.
template <class Scalar, FeatureMap F>
struct GradientBatches {
  /// Checks all heads, then runs them; returns the gradient in the scale.
  static double run(RowKind kind, const F& feature, VjpTransitions<Scalar>& transitions,
                    const AttendVjpCall<Scalar, F>& call, const Threads& threads) {
    return BatchVjp<Scalar, F>(kind, feature, transitions, call, threads).run();
  }
};

template <class Scalar, class F, class Given>
BatchGradients<TransitionOfBatch<Given>> batch_gradients(RowKind kind, const F& feature, const Given& given,
                                                         const AttendVjpCall<Scalar, F>& call, const Threads& threads) {
  using A = TransitionOfBatch<Given>;
  BatchGradients<A> gradients;
  if constexpr (check_vjp<F, A, Scalar, !has_state_forms<F, A>>()) {
    VjpTransitionsOf<Scalar, Given> transitions(given, gradients.transitions);
    gradients.scale = GradientBatches<Scalar, F>::run(kind, feature, transitions, call, threads);
  }
  return gradients;
}

}  // namespace detail

inline namespace SYMPOW_THREADS {

/// The gradients of `attend`, from dY = ∂loss/∂Y, of the same states or none.
///
///     dQ: H heads of d,   dK: H_kv of d,   dV: H_kv of e,   each as Q, K, V; the gradients of transitions are returned
///
///     attend_vjp(feature, transitions, {.Q = Q, .K = K, .V = V, .dY = dY, .dQ = dQ, .dK = dK, .dV = dV});
///
/// Keys and values get the sum over the query heads of their group, in order. Gradients are 0 where Q or K is padding.
/// The gradients of states become those of the states given, or stay as they were if the call throws: it works on a
/// copy of them. With `.tapes`, which `attend` has filled, the forward pass is not computed again. Threads run over
/// sequences and key heads; a head that `attend` would cut into segments is cut here too. Results are the same bit for
/// bit for any number of threads. Throws as `attend` does, before anything is touched, `ShapeMismatch` for gradients of
/// another shape, and `InvalidArgument` for gradients that share memory and for a tape of another normalization, scale
/// or mask.
template <class Normalization = DefaultNormalization, FeatureMap F, class Transitions>
auto attend_vjp(const F& feature, const Transitions& transitions, const AttendVjpCall<float, F>& call) {
  return detail::batch_gradients(detail::row_kind<Normalization, F>(), feature, transitions, call,
                                 detail::threads_of_program(call.options.threads));
}
/// Overload for double.
template <class Normalization = DefaultNormalization, FeatureMap F, class Transitions>
auto attend_vjp(const F& feature, const Transitions& transitions, const AttendVjpCall<double, F>& call) {
  return detail::batch_gradients(detail::row_kind<Normalization, F>(), feature, transitions, call,
                                 detail::threads_of_program(call.options.threads));
}

}  // namespace SYMPOW_THREADS
}  // namespace SYMPOW_NAMESPACE

/// Gradients of batches of a feature map, compiled in one place as `SYMPOW_GRADIENTS`.
#define SYMPOW_GRADIENT_BATCHES(LINKAGE, Scalar, ...) \
  LINKAGE template struct sympow::detail::GradientBatches<Scalar, __VA_ARGS__>;

#ifdef SYMPOW_COMPILED_GRADIENTS
SYMPOW_FEATURE_MAPS(SYMPOW_GRADIENT_BATCHES, extern, float)
SYMPOW_FEATURE_MAPS(SYMPOW_GRADIENT_BATCHES, extern, double)
#endif
