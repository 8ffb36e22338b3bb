// Gradients of all heads of a batch in one call.
#pragma once

#include <numeric>

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
  virtual void with_gradient(Index n, const Visitor<VjpView<Scalar>&>& visit) = 0;
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
  void with_gradient(Index n, const Visitor<VjpView<Scalar>&>& visit) override {
    VjpViewOf<Scalar, A> view(this->transition(n), gradients_[static_cast<std::size_t>(n)]);
    visit(view);
  }

 private:
  std::vector<typename A::Gradient>& gradients_;
};

/// Adds to the gradient of a state another one of the same.
template <class Scalar, class F>
void add_state_gradient(const F& feature, Adjoint<Scalar>& to, const Adjoint<Scalar>& from) {
  add_sums<Scalar>([&](StateSums<Scalar>& sums) { fold_state(feature, sums); }, from.sums, 0, from.sums.log_channels,
                   to.sums);
  if (from.gauge.size() != 0) to.gauge += from.gauge;  // none where nothing turns
  if (from.frame.size() != 0) to.frame += from.frame;
}

/// The arguments of a batch of gradients except its transitions.
template <class Scalar>
struct BatchVjpCall : BatchCall<Scalar, const Scalar> {
  GivenRange<Adjoint<Scalar>> d_states;
  GivenRange<const TapeContent<Scalar>> tapes;
  Heads<Scalar> dQ, dK, dV;
  OptionalRef<VjpWorkspaces<Scalar>> workspaces;
};

/// Throws `ShapeMismatch` unless gradients have the heads, numbers and tokens of what they are of, and
/// `InvalidArgument` if they share memory; and what is wrong with the number of tapes and gradients of states.
template <class Scalar>
void check_batch_gradients(const BatchVjpCall<Scalar>& x) {
  const auto check = [](const char* name, const Heads<Scalar>& dx, const char* of, const Heads<const Scalar>& given) {
    check_same("number of sequences", name, dx.sequences(), of, given.sequences());
    check_same("number of heads", name, dx.heads(), of, given.heads());
    check_same("dimension", name, dx.dimension(), of, given.dimension());
    check_same_lengths(name, dx, of, given);
  };
  check("dQ", x.dQ, "Q", x.Q);
  check("dK", x.dK, "K", x.K);
  check("dV", x.dV, "V", x.V);
  check_outputs({{"dQ", x.dQ.layout()}, {"dK", x.dK.layout()}, {"dV", x.dV.layout()}},
                {{"Q", x.Q.layout()}, {"K", x.K.layout()}, {"V", x.V.layout()}, {"dY", x.Y->layout()}});
  if (x.states && x.tapes)
    raise<InvalidArgument>("attend_vjp: states and tapes are given; tapes are of calls without states");
  if (x.tapes) check_size("number of tapes", x.tapes.size(), x.Q.sequences() * x.Q.heads(), "that of query heads");
  if (!x.d_states) return;
  if (!x.states) raise<InvalidArgument>("attend_vjp: gradients of states are given, but no states");
  check_size("number of states' gradients", x.d_states.size(), x.states.size(), "that of the states");
  check_distinct("gradients of states", x.d_states);
}

/// Runs the gradients of a query head. The loss on a state that heads share is that of the first of them; the others
/// add to its gradient.
template <class Scalar, FeatureMap F>
void run_head(const F& feature, VjpInputs<Scalar>& x, bool is_first, const auto& run) {
  if constexpr (has_embedding<F>)
    if (x.d_state && !is_first) {
      Adjoint<Scalar>& sum = *x.d_state;
      Adjoint<Scalar> own = no_adjoint<Scalar>(feature.dimension(x.d()), x.d(), x.e());
      x.d_state = own;
      run(x);
      return add_state_gradient(feature, sum, own);
    }
  run(x);
}

/// Batches of gradients, compiled once for a scalar type and a feature map as passes see it, and for any program's
/// threads.
template <class Scalar, FeatureMap F>
struct GradientBatches {
  /// Checks all heads, then runs them: the query heads of a key head one after the other, so that what they add to its
  /// keys and values comes in order. Returns the gradient in the scale.
  static double run(RowKind kind, const F& feature, VjpTransitions<Scalar>& transitions,
                    const BatchVjpCall<Scalar>& call, const Threads& threads);
};

template <class Scalar, FeatureMap F>
double GradientBatches<Scalar, F>::run(RowKind kind, const F& feature, VjpTransitions<Scalar>& transitions,
                                       const BatchVjpCall<Scalar>& x, const Threads& most) {
  using Inputs = VjpInputs<Scalar>;
  const auto at = [](Index n) { return static_cast<std::size_t>(n); };
  const CheckedBatch batch(feature, transitions, static_cast<const BatchCall<Scalar, const Scalar>&>(x));
  check_batch_gradients(x);
  const auto& call = batch.call;
  const Index H = x.Q.heads(), heads = x.Q.sequences() * H, key_heads = x.Q.sequences() * x.K.heads();
  std::vector<Adjoint<Scalar>> d_states;  // take the place of those given if nothing fails
  for (Index n = 0; n < x.d_states.size(); ++n) d_states.push_back(*x.d_states[n]);
  for (Index n = 0; n < call.all_groups(); ++n) {
    const auto head = call.first_head(n);
    transitions.add_gradient(std::max(head.K.cols(), head.Q.cols() + x.options.head.mask.offset));
  }
  const auto form_of_head = [&](Index head) { return batch.plan(head / call.group).form; };
  const auto with_head = [&](Index head, const auto& f) {
    const Index n = head / call.group;
    const auto of = call.head(head / H, head % H);
    transitions.with_gradient(n, [&](VjpView<Scalar>& transition) {
      Inputs inputs{
          {kind, &transition.transition(), of.Q, of.K, of.V, x.options.head}, transition, of.Y, call.states[n]};
      if (x.tapes && x.tapes[head]->form == form_of_head(head)) inputs.tape = x.tapes[head];
      if (x.d_states) inputs.d_state = d_states[at(n)];
      f(inputs);
    });
  };
  for (Index n = 0; n < heads; ++n)
    with_head_context(n / H, n % H, call.group, [&] {
      with_head(n, [&](const Inputs& inputs) { GradientCalls<Scalar, F>::check(form_of_head(n), feature, inputs); });
    });
  std::vector<double> scales(at(heads));
  const auto run_key_head = [&](Index n, const auto& run) {
    const Index b = n / x.K.heads(), key_head = n % x.K.heads(), count = call.heads_of_key();
    auto dK = x.dK.head(b, key_head), dV = x.dV.head(b, key_head);
    for (const auto* dx : {&x.dK, &x.dV}) dx->head(b, key_head).setZero(), dx->padding(b, key_head).setZero();
    for (Index h = key_head * count; h < (key_head + 1) * count; ++h) {
      auto dQ = x.dQ.head(b, h);
      dQ.setZero(), x.dQ.padding(b, h).setZero();
      const VjpResults<Scalar> to{dQ, dK, dV, scales[at(b * H + h)]};
      with_head(b * H + h, [&](Inputs& inputs) {
        run_head(feature, inputs, h % call.group == 0, [&](Inputs& of) { run(b * H + h, of, to); });
      });
    }
  };
  // The query heads of key head n go by one form; 0 if they are not cut into segments.
  const auto chunk_of_scan = [&](Index n) {
    const bool can = transitions.have_parts() && call.heads_of_key() > 0;
    return can ? batch.plan(n * call.heads_of_key() / call.group).scanned_chunk : 0;
  };
  const Threads threads = batch.useful(most);
  VjpWorkspaces<Scalar> own;
  VjpWorkspaces<Scalar>& workspaces = x.workspaces ? *x.workspaces : own;
  parallel_for(key_heads, threads, workspaces, [&](Index n, VjpWorkspace<Scalar>& work) {
    if (chunk_of_scan(n) > 0) return;
    run_key_head(n, [&](Index head, const Inputs& inputs, const VjpResults<Scalar>& to) {
      GradientCalls<Scalar, F>::run(form_of_head(head), feature, inputs, to, work);
    });
  });
  if constexpr (has_embedding<F> && F::score == Score::power)
    for (Index n = 0; n < key_heads; ++n)
      if (const Index chunk = chunk_of_scan(n); chunk > 0)
        run_key_head(n, [&](Index, Inputs& inputs, const VjpResults<Scalar>& to) {
          inputs.call.options.chunk = chunk;
          ScanVjp<Scalar, F>(feature, inputs, to, workspaces, threads).run();
        });
  for (Index n = 0; n < x.d_states.size(); ++n) *x.d_states[n] = std::move(d_states[at(n)]);
  return std::accumulate(scales.begin(), scales.end(), 0.);
}

template <class Scalar, class F, class Given>
BatchGradients<TransitionOfBatch<Given>> batch_gradients(RowKind kind, const F& feature, const Given& given,
                                                         const AttendVjpCall<Scalar, F>& x, const Threads& threads) {
  using A = TransitionOfBatch<Given>;
  BatchGradients<A> gradients;
  if constexpr (check_vjp<F, A, Scalar, !has_state_forms<F, A>>()) {
    VjpTransitionsOf<Scalar, Given> transitions(given, gradients.transitions);
    RangeRef<const Tape<Scalar, F>> tapes;
    if (x.tapes) tapes = *x.tapes;
    const BatchVjpCall<Scalar> call{
        {x.Q, x.K, x.V, x.dY, x.states, x.options}, x.d_states, tapes, x.dQ, x.dK, x.dV, x.workspaces};
    gradients.scale = GradientBatches<Scalar, InterfaceOf<Scalar, F>>::run(kind, pass_feature<Scalar>(feature),
                                                                           transitions, call, threads);
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
template <class Normalization = DefaultNormalization, FeatureMap F, detail::TransitionsOfBatch Transitions>
auto attend_vjp(const F& feature, const Transitions& transitions, const AttendVjpCall<float, F>& call) {
  return detail::batch_gradients(detail::row_kind<Normalization, F>(), feature, transitions, call,
                                 detail::threads_of_program(call.options.threads));
}
/// Overload for double.
template <class Normalization = DefaultNormalization, FeatureMap F, detail::TransitionsOfBatch Transitions>
auto attend_vjp(const F& feature, const Transitions& transitions, const AttendVjpCall<double, F>& call) {
  return detail::batch_gradients(detail::row_kind<Normalization, F>(), feature, transitions, call,
                                 detail::threads_of_program(call.options.threads));
}

}  // namespace SYMPOW_THREADS
}  // namespace SYMPOW_NAMESPACE

/// Gradients of batches of all feature maps, compiled in one place as `SYMPOW_ALL_GRADIENTS`.
#define SYMPOW_GRADIENT_BATCH(LINKAGE, Scalar, ...) \
  LINKAGE template struct sympow::detail::GradientBatches<Scalar, __VA_ARGS__>;
#define SYMPOW_GRADIENT_BATCHES(LINKAGE, Scalar) SYMPOW_PASS_FEATURES(SYMPOW_GRADIENT_BATCH, LINKAGE, Scalar)

#ifdef SYMPOW_COMPILED_GRADIENTS
SYMPOW_GRADIENT_BATCHES(extern, float)
SYMPOW_GRADIENT_BATCHES(extern, double)
#endif
