// The calls of a scalar type and a feature map, compiled for each in one place.
#pragma once

#include <sympow/attention/batch_vjp.hpp>
#include <sympow/c/states_of.hpp>
#include <sympow/c/transitions.hpp>
#include <sympow/feature/exponential.hpp>
#include <sympow/feature/random_features.hpp>
#include <sympow/feature/symmetric_power.hpp>

namespace SYMPOW_NAMESPACE::c {

template <class S, FeatureMap F>
class EngineOf final : public Engine {
 public:
  /// The one of its types.
  [[nodiscard]] static const Engine& instance() {
    static const EngineOf engine;
    return engine;
  }

  void attend(const Settings& settings, const Inputs& in, Form form, States* states, const Array* rows,
              Scratch& scratch) const override {
    const auto Q = heads_of<const S>(in.queries, in.lengths), K = heads_of<const S>(in.keys, in.lengths),
               V = heads_of<const S>(in.values, in.lengths);
    std::optional<Heads<S>> Y;
    if (rows != nullptr) Y = heads_of<S>(*rows, in.lengths);
    BatchOptions options = settings.options;
    options.form = form;
    auto& workspaces = of<Workspaces<S>>(scratch);
    const F feature = settings.feature<F>(in.queries.shape[3]);
    with_normalisation(settings, [&]<class N>(N) {
      with_transitions<S>(in, settings, groups_of(in, states), [&](const auto& transitions) {
        sympow::attend<N>(
            feature, transitions,
            {.Q = Q, .K = K, .V = V, .states = range_of(states), .Y = Y, .workspaces = workspaces, .options = options});
      });
    });
  }

  void diagnose(const Settings& settings, const Inputs& in, const States* states, const Array& diagnostics,
                Scratch& scratch) const override {
    const auto Q = heads_of<const S>(in.queries, in.lengths), K = heads_of<const S>(in.keys, in.lengths),
               V = heads_of<const S>(in.values, in.lengths);
    Matrix<S> rows(V.dimension(), in.sequences() * in.queries.shape[1] * in.query_heads());
    const auto Y =
        Heads<S>::bthd(rows.data(), in.sequences(), in.queries.shape[1], in.query_heads(), V.dimension(), in.lengths);
    const F feature = settings.feature<F>(in.queries.shape[3]);
    with_normalisation(settings, [&]<class N>(N) {
      with_transitions<S>(in, settings, groups_of(in, states), [&]<class Given>(const Given& given) {
        detail::BatchTransitionsOf<S, Given> transitions(given);
        const detail::BatchCall<S> call{Q, K, V, Y, settings.options};
        diagnose_heads(detail::row_kind<N, F>(), feature, transitions, call, range_of(states), diagnostics,
                       of<Workspaces<S>>(scratch));
      });
    });
  }

  void attend_vjp(const Settings& settings, const Inputs& in, const Array& d_rows, const States* states,
                  StateGradients* state_gradients, const Results& results, Scratch& scratch) const override {
    const auto Q = heads_of<const S>(in.queries, in.lengths), K = heads_of<const S>(in.keys, in.lengths),
               V = heads_of<const S>(in.values, in.lengths), dY = heads_of<const S>(d_rows, in.lengths);
    const auto dQ = heads_of<S>(results.queries, in.lengths), dK = heads_of<S>(results.keys, in.lengths),
               dV = heads_of<S>(results.values, in.lengths);
    auto& workspaces = of<VjpWorkspaces<S>>(scratch);
    const Index groups = groups_of(in, states);
    const F feature = settings.feature<F>(in.queries.shape[3]);
    with_normalisation(settings, [&]<class N>(N) {
      with_transitions<S>(in, settings, groups, [&](const auto& transitions) {
        write(sympow::attend_vjp<N>(feature, transitions,
                                    {.Q = Q,
                                     .K = K,
                                     .V = V,
                                     .dY = dY,
                                     .states = range_of(states),
                                     .d_states = range_of(state_gradients),
                                     .dQ = dQ,
                                     .dK = dK,
                                     .dV = dV,
                                     .workspaces = workspaces,
                                     .options = settings.options}),
              in, groups, results);
      });
    });
  }

  [[nodiscard]] Index dimension([[maybe_unused]] const Settings& settings, [[maybe_unused]] Index d) const override {
    if constexpr (std::is_same_v<F, PositiveRandomFeatures>)
      return settings.scores.features;
    else if constexpr (FiniteFeatureMap<F>)
      return F{}.dimension(d);
    else
      detail::raise<InvalidArgument>("exponential scores have no embedding of finite dimension, and so no states");
  }

  [[nodiscard]] std::unique_ptr<States> states([[maybe_unused]] const Settings& settings,
                                               [[maybe_unused]] const StateShape& shape,
                                               [[maybe_unused]] const States* after) const override {
    if constexpr (FiniteFeatureMap<F>) {
      const F feature = settings.feature<F>(shape.d);
      const auto* const others = static_cast<const StatesOf<S, F>*>(after);
      return std::make_unique<StatesOf<S, F>>(
          shape, feature, StatesOf<S, F>::empty(shape, feature, others == nullptr ? nullptr : &others->all));
    } else {
      return nullptr;  // its dimension has been refused
    }
  }

 private:
  template <class W>
  static W& of(Scratch& scratch) {
    if constexpr (std::is_same_v<W, Workspaces<float>>)
      return scratch.of_float;
    else if constexpr (std::is_same_v<W, Workspaces<double>>)
      return scratch.of_double;
    else if constexpr (std::is_same_v<W, VjpWorkspaces<float>>)
      return scratch.of_float_vjp;
    else
      return scratch.of_double_vjp;
  }

  /// Runs each query head by itself, in the form of its batch, from a copy of its state; rows are scratch memory.
  static void diagnose_heads(detail::RowKind kind, const F& feature, detail::BatchTransitions<S>& transitions,
                             const detail::BatchCall<S>& given,
                             const RangeRef<const typename detail::StateOf<S, F>::type>& states,
                             const Array& diagnostics, Workspaces<S>& workspaces) {
    const detail::CheckedBatch batch(feature, transitions, given, states);
    const detail::BatchCall<S>& call = batch.call;
    const auto threads = batch.useful(detail::threads_of_program(call.options.threads));
    detail::parallel_for(call.Q.sequences() * call.Q.heads(), threads, workspaces, [&](Index n, Workspace<S>& work) {
      const auto head = call.head(n / call.Q.heads(), n % call.Q.heads());
      const auto b = head.sequence, h = head.head, group = n / call.group;
      Diagnostics said;
      Options options = call.options.head;
      options.diagnostics = &said, options.check_finite = false;  // it has been done
      transitions.with(group, [&](const TransitionView<S>& transition) {
        const detail::FormInputs<S, F> inputs{kind, feature, transition, head.Q, head.K, head.V, options};
        const auto run = [&](const auto& state) {
          Batch<S> Y = head.Y;
          detail::FormCalls<S, F>::run(batch.plan(group).form, inputs, state, Y, {}, work);
        };
        if (!states) return run(OptionalRef<typename detail::StateOf<S, F>::type>());
        auto copy = states[group];
        run(OptionalRef(copy));
      });
      for (Index t = 0; t < diagnostics.shape[1]; ++t) {
        const bool is_token = t < said.log_sum.size();  // else padding
        diagnostics.set({b, t, h, 0}, is_token ? said.log_sum[t] : 0);
        diagnostics.set({b, t, h, 1}, is_token ? said.condition[t] : 0);
        diagnostics.set({b, t, h, 2}, is_token && said.is_degenerate[t] ? 1 : 0);
      }
    });
  }

  /// The states of a call, if there are any.
  static RangeRef<typename detail::StateOf<S, F>::type> range_of(States* states) {
    if constexpr (FiniteFeatureMap<F>)
      if (states != nullptr) return static_cast<StatesOf<S, F>*>(states)->all;
    return {};
  }
  static RangeRef<const typename detail::StateOf<S, F>::type> range_of(const States* states) {
    if constexpr (FiniteFeatureMap<F>)
      if (states != nullptr) return static_cast<const StatesOf<S, F>*>(states)->all;
    return {};
  }
  static RangeRef<typename detail::StateOf<S, F>::gradient> range_of(StateGradients* gradients) {
    if constexpr (FiniteFeatureMap<F>)
      if (gradients != nullptr) return static_cast<StateGradientsOf<S, F>*>(gradients)->all;
    return {};
  }

  /// Heads of a sequence that have a transition of their own.
  static Index groups_of(const Inputs& in, const States* states) {
    return states == nullptr ? in.query_heads() : states->shape().heads;
  }

  template <class Visit>
  static void with_normalisation(const Settings& settings, const Visit& visit) {
    using Means = std::conditional_t<F::nonnegative, Normalized, SignedNormalized>;
    if (settings.normalisation == SYMPOW_UNNORMALISED) return visit(Unnormalized{});
    visit(Means{});
  }

  /// Writes gradients of parameters: each number is a sum over the groups that read it, in order.
  template <class A>
  static void write(const BatchGradients<A>& gradients, const Inputs& in, Index groups, const Results& results) {
    // number(g, t, c) of the gradient g of a transition; c is 0 where `to` has no channels
    const auto write_tokens = [&](const std::optional<Array>& to, const auto& number) {
      if (!to) return;
      const bool has_channels = to->dimensions == 4;
      const Index heads = to->shape[2], channels = has_channels ? to->shape[3] : 1;
      for (Index b = 0; heads > 0 && b < in.sequences(); ++b)
        for (Index h = 0; h < heads; ++h)
          for (Index t = 0; t < to->shape[1]; ++t)
            for (Index c = 0; c < channels; ++c) {
              double sum = 0;
              for (Index n = h * groups / heads; t < in.tokens(b) && n < (h + 1) * groups / heads; ++n)
                sum += number(gradients.transitions[static_cast<std::size_t>(b * groups + n)], t, c);
              if (has_channels)
                to->set({b, t, h, c}, sum);
              else
                to->set({b, t, h}, sum);
            }
    };
    write_tokens(results.log_gates, [](const auto& g, Index t, Index) { return log_gates_in(g)[t]; });
    if constexpr (std::is_same_v<A, ArrayGatesAnd<ChannelDecay<double>>>) {
      write_tokens(results.channel_gates,
                   [](const auto& g, Index t, Index c) { return g.template of<ChannelDecay<double>>().log_a(c, t); });
    } else if constexpr (std::is_same_v<A, ArrayGatesAnd<Householder<S>>>) {
      write_tokens(results.householder, [](const auto& g, Index t, Index c) {
        return static_cast<double>(g.template of<Householder<S>>().w(c, t));
      });
      write_tokens(results.strengths,
                   [](const auto& g, Index t, Index) { return g.template of<Householder<S>>().beta[t]; });
    } else if constexpr (std::is_same_v<A, ArrayGatesAnd<Rotary>>) {
      const bool has_axes = in.theta->dimensions == 2;
      const Index axes = has_axes ? in.theta->shape[0] : 1, pairs = in.theta->shape[has_axes ? 1 : 0];
      write_tokens(results.beta,
                   [&](const auto& g, Index t, Index a) { return g.template of<Rotary>().beta[t * axes + a]; });
      for (Index n = 0; results.theta && n < axes * pairs; ++n) {
        double sum = 0;
        for (const auto& g : gradients.transitions) sum += g.template of<Rotary>().theta[n];
        if (has_axes)
          results.theta->set({n / pairs, n % pairs}, sum);
        else
          results.theta->set({n}, sum);
      }
    }
    if (results.scale) results.scale->set({0}, gradients.scale);
  }
};

}  // namespace SYMPOW_NAMESPACE::c

/// The engines of a scalar type: of every power, of exponential scores and of their random features.
#define SYMPOW_C_ENGINES(LINKAGE, Scalar)                                        \
  LINKAGE template class sympow::c::EngineOf<Scalar, sympow::SymmetricPower<1>>; \
  LINKAGE template class sympow::c::EngineOf<Scalar, sympow::SymmetricPower<2>>; \
  LINKAGE template class sympow::c::EngineOf<Scalar, sympow::SymmetricPower<3>>; \
  LINKAGE template class sympow::c::EngineOf<Scalar, sympow::SymmetricPower<4>>; \
  LINKAGE template class sympow::c::EngineOf<Scalar, sympow::Exponential>;       \
  LINKAGE template class sympow::c::EngineOf<Scalar, sympow::PositiveRandomFeatures>;
#define SYMPOW_C_HIGH_POWERS(LINKAGE, Scalar)                                    \
  LINKAGE template class sympow::c::EngineOf<Scalar, sympow::SymmetricPower<5>>; \
  LINKAGE template class sympow::c::EngineOf<Scalar, sympow::SymmetricPower<6>>; \
  LINKAGE template class sympow::c::EngineOf<Scalar, sympow::SymmetricPower<7>>; \
  LINKAGE template class sympow::c::EngineOf<Scalar, sympow::SymmetricPower<8>>;
