// The calls of a scalar type and a feature map, compiled in one place.
#pragma once

#include <sympow/c/states_of.hpp>
#include <sympow/c/transitions.hpp>
#include <sympow/feature/exponential.hpp>
#include <sympow/feature/random_features.hpp>
#include <sympow/feature/symmetric_power.hpp>

// Compiled elsewhere for all engines.
SYMPOW_C_TRANSITIONS(extern, float)
SYMPOW_C_TRANSITIONS(extern, double)

namespace SYMPOW_NAMESPACE::c {

/// Calls of a scalar type and of what passes see of a feature map.
template <class S, FeatureMap F>
class EngineOfType : public Engine {
 public:
  void attend(const Settings& settings, const Inputs& in, Form form, States* states, const Array* rows,
              Scratch& scratch) const override {
    const auto Q = heads_of<const S>(in.queries, in.lengths), K = heads_of<const S>(in.keys, in.lengths),
               V = heads_of<const S>(in.values, in.lengths);
    std::optional<Heads<S>> Y;
    if (rows != nullptr) Y = heads_of<S>(*rows, in.lengths);
    BatchOptions options = settings.options;
    options.form = form;
    auto& workspaces = of<Workspaces<S>>(scratch);
    with_call(settings, in, states, [&](const F& feature, detail::BatchTransitions<S>& transitions) {
      detail::BatchForms<S, F>::run(row_kind(settings), feature, transitions, {Q, K, V, Y, range_of(states), options},
                                    {}, workspaces, detail::threads_of_program(options.threads));
    });
  }

  void diagnose(const Settings& settings, const Inputs& in, const States* states, const Array& diagnostics,
                Scratch& scratch) const override {
    const auto Q = heads_of<const S>(in.queries, in.lengths), K = heads_of<const S>(in.keys, in.lengths),
               V = heads_of<const S>(in.values, in.lengths);
    Matrix<S> rows(V.dimension(), in.sequences() * in.queries.shape[1] * in.query_heads());
    const auto Y =
        Heads<S>::bthd(rows.data(), in.sequences(), in.queries.shape[1], in.query_heads(), V.dimension(), in.lengths);
    with_call(settings, in, states, [&](const F& feature, detail::BatchTransitions<S>& transitions) {
      const auto copied = range_of(const_cast<States*>(states));
      diagnose_heads(row_kind(settings), feature, transitions, {Q, K, V, Y, copied, settings.options}, diagnostics,
                     of<Workspaces<S>>(scratch));
    });
  }

  void attend_vjp(const Settings& settings, const Inputs& in, const Array& d_rows, const States* states,
                  StateGradients* state_gradients, const Results& results, Scratch& scratch) const override {
    const auto Q = heads_of<const S>(in.queries, in.lengths), K = heads_of<const S>(in.keys, in.lengths),
               V = heads_of<const S>(in.values, in.lengths), dY = heads_of<const S>(d_rows, in.lengths);
    const auto dQ = heads_of<S>(results.queries, in.lengths), dK = heads_of<S>(results.keys, in.lengths),
               dV = heads_of<S>(results.values, in.lengths);
    auto& workspaces = of<VjpWorkspaces<S>>(scratch);
    const CallTransitions<S> all{in, settings, groups_of(in, states)};
    with_feature(settings, in.queries.shape[3], [&](const F& feature) {
      all.visit_vjp(results, [&](detail::VjpTransitions<S>& transitions) {
        const double scale = detail::GradientBatches<S, F>::run(
            row_kind(settings), feature, transitions,
            {{Q, K, V, dY, range_of(states), settings.options}, range_of(state_gradients), {}, dQ, dK, dV, workspaces},
            detail::threads_of_program(settings.options.threads));
        if (results.scale) results.scale->set({0}, scale);
      });
    });
  }

 protected:
  using VisitFeature = detail::Visitor<const F&>;

  explicit EngineOfType(bool nonnegative) : is_nonnegative_(nonnegative) {}
  /// visit(the feature map of keys in R^d).
  virtual void with_feature(const Settings& settings, Index d, const VisitFeature& visit) const = 0;

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
                             const detail::BatchCall<S>& given, const Array& diagnostics, Workspaces<S>& workspaces) {
    const detail::CheckedBatch batch(feature, transitions, given);
    const detail::BatchCall<S>& call = batch.call;
    const auto threads = batch.useful(detail::threads_of_program(call.options.threads));
    detail::parallel_for(call.Q.sequences() * call.Q.heads(), threads, workspaces, [&](Index n, Workspace<S>& work) {
      auto head = call.head(n / call.Q.heads(), n % call.Q.heads());
      const auto b = head.sequence, h = head.head, group = n / call.group;
      Diagnostics said;
      Options options = call.options.head;
      options.diagnostics = &said, options.check_finite = false;  // it has been done
      transitions.with(group, [&](const TransitionView<S>& transition) {
        detail::FormInputs<S> inputs{{kind, &transition, head.Q, head.K, head.V, options, head.Y}};
        const auto run = [&] { detail::FormCalls<S, F>::run(batch.plan(group).form, feature, inputs, work); };
        if (!call.states) return run();
        detail::StateContent<S> copy = *call.states[group];
        inputs.state = {copy};
        run();
      });
      for (Index t = 0; t < diagnostics.shape[1]; ++t) {
        const bool is_token = t < said.log_sum.size();  // else padding
        diagnostics.set({b, t, h, 0}, is_token ? said.log_sum[t] : 0);
        diagnostics.set({b, t, h, 1}, is_token ? said.condition[t] : 0);
        diagnostics.set({b, t, h, 2}, is_token && said.is_degenerate[t] ? 1 : 0);
      }
    });
  }

  /// The states of a call, or their gradients, if there are any.
  static detail::GivenRange<detail::StateContent<S>> range_of(States* states) {
    if (states == nullptr) return {};
    return static_cast<StatesOf<S>*>(states)->all;
  }
  static detail::GivenRange<const detail::StateContent<S>> range_of(const States* states) {
    if (states == nullptr) return {};
    return static_cast<const StatesOf<S>*>(states)->all;
  }
  static detail::GivenRange<detail::Adjoint<S>> range_of(StateGradients* gradients) {
    if (gradients == nullptr) return {};
    return static_cast<StateGradientsOf<S>*>(gradients)->all;
  }

  void with_call(const Settings& settings, const Inputs& in, const States* states,
                 const detail::Visitor<const F&, detail::BatchTransitions<S>&>& call) const {
    with_feature(settings, in.queries.shape[3], [&](const F& feature) {
      CallTransitions<S>{in, settings, groups_of(in, states)}.visit(
          [&](detail::BatchTransitions<S>& transitions) { call(feature, transitions); });
    });
  }

  /// Heads of a sequence that have a transition of their own.
  static Index groups_of(const Inputs& in, const States* states) {
    return states == nullptr ? in.query_heads() : states->shape().heads;
  }

  [[nodiscard]] detail::RowKind row_kind(const Settings& settings) const {
    if (settings.normalisation == SYMPOW_UNNORMALISED) return detail::RowKind::sums;
    return is_nonnegative_ ? detail::RowKind::weighted_means : detail::RowKind::signed_means;
  }

  bool is_nonnegative_;
};

template <class S, FeatureMap F>
class EngineOf final : public EngineOfType<S, detail::InterfaceOf<S, F>> {
  using Base = EngineOfType<S, detail::InterfaceOf<S, F>>;

 public:
  EngineOf() : Base(F::nonnegative) {}
  /// The one of its types.
  [[nodiscard]] static const Engine& instance() {
    static const EngineOf engine;
    return engine;
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
      const auto* const others = static_cast<const StatesOf<S>*>(after);
      return std::make_unique<StatesOf<S>>(shape, std::make_shared<StateFeatureOf<S, F>>(settings.feature<F>(shape.d)),
                                           StatesOf<S>::empty(shape, others == nullptr ? nullptr : &others->all));
    } else {
      return nullptr;  // its dimension has been refused
    }
  }

 private:
  void with_feature(const Settings& settings, Index d, const typename Base::VisitFeature& visit) const override {
    const F feature = settings.feature<F>(d);
    visit(detail::pass_feature<S>(feature));
  }
};

}  // namespace SYMPOW_NAMESPACE::c

/// The engines of a scalar type: of every power, of exponential scores and of their random features.
#define SYMPOW_C_ENGINE(LINKAGE, Scalar, ...) LINKAGE template class sympow::c::EngineOf<Scalar, __VA_ARGS__>;
#define SYMPOW_C_ENGINES(LINKAGE, Scalar)                     \
  SYMPOW_C_ENGINE(LINKAGE, Scalar, sympow::SymmetricPower<1>) \
  SYMPOW_C_ENGINE(LINKAGE, Scalar, sympow::SymmetricPower<2>) \
  SYMPOW_C_ENGINE(LINKAGE, Scalar, sympow::SymmetricPower<3>) \
  SYMPOW_C_ENGINE(LINKAGE, Scalar, sympow::SymmetricPower<4>) \
  SYMPOW_C_ENGINE(LINKAGE, Scalar, sympow::SymmetricPower<5>) \
  SYMPOW_C_ENGINE(LINKAGE, Scalar, sympow::SymmetricPower<6>) \
  SYMPOW_C_ENGINE(LINKAGE, Scalar, sympow::SymmetricPower<7>) \
  SYMPOW_C_ENGINE(LINKAGE, Scalar, sympow::SymmetricPower<8>) \
  SYMPOW_C_ENGINE(LINKAGE, Scalar, sympow::Exponential)       \
  SYMPOW_C_ENGINE(LINKAGE, Scalar, sympow::PositiveRandomFeatures)
