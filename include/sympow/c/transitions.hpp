// The transition of a call, of what is given: gates, and rotary positions, or channel gates, Householder vectors or
// both.
#pragma once

#include <utility>

#include <sympow/attention/batch_vjp.hpp>
#include <sympow/c/engine.hpp>
#include <sympow/transition/channel_decay.hpp>
#include <sympow/transition/householder.hpp>
#include <sympow/transition/product.hpp>
#include <sympow/transition/rotary.hpp>

namespace SYMPOW_NAMESPACE::c {

/// A_i = γ_i I with gates that are read where they are; without an array, I. As `Decay`, and `Stationary`; calls check
/// that gates are gates.
class ArrayGates : public KeepsKeys {
 public:
  ArrayGates() = default;
  ArrayGates(const Array& gates, Index sequence, Index head, Index tokens)
      : at_(gates.empty() ? nullptr : gates.at({sequence, 0, head})),
        step_(gates.strides[1] * bytes_of(gates.element)),
        tokens_(tokens),
        is_float_(gates.element == Element::float32) {}

  [[nodiscard]] Index length() const { return tokens_; }
  [[nodiscard]] double log_decay(Index token) const {
    if (at_ == nullptr) return 0;
    const std::byte* const x = at_ + token * step_;
    return is_float_ ? static_cast<double>(*reinterpret_cast<const float*>(x)) : *reinterpret_cast<const double*>(x);
  }

  /// Of the gates; none without.
  struct Gradient {
    Eigen::VectorXd log_gamma;
  };
  [[nodiscard]] Gradient zero_gradient(Index tokens) const {
    return {Eigen::VectorXd::Zero(tokens_ == Dynamic ? 0 : tokens)};
  }
  void add_decay_flows(Segment s, const double* flows, Gradient& g) const {
    for (Index i = 0; i < (tokens_ == Dynamic ? 0 : s.size); ++i) g.log_gamma[s.begin + i] += flows[i];
  }
  [[nodiscard]] ArrayGates part(Segment s) const {
    ArrayGates part = *this;
    if (tokens_ == Dynamic) return part;
    part.tokens_ = s.size;
    if (at_ != nullptr) part.at_ += s.begin * step_;
    return part;
  }
  void join(const Gradient& part, Segment s, Gradient& whole) const {
    if (tokens_ != Dynamic) whole.log_gamma.segment(s.begin, s.size) += part.log_gamma;
  }

 private:
  const std::byte* at_ = nullptr;
  Index step_ = 0, tokens_ = Dynamic;
  bool is_float_ = false;
};

template <class A>
using ArrayGatesAnd = TransitionProduct<ArrayGates, A>;

/// The numbers of a dimension.
inline Eigen::VectorXd numbers_of(Index size, const auto& number) {
  Eigen::VectorXd numbers(size);
  for (Index i = 0; i < size; ++i) numbers[i] = number(i);
  return numbers;
}

/// Throws `ShapeMismatch` for parameters of query heads where the states are those of key heads.
inline void check_parameter_heads(const std::optional<Array>& parameter, Index groups) {
  if (parameter && parameter->shape[2] > groups)
    detail::raise<ShapeMismatch>(parameter->name, ": shape[2] is ", parameter->shape[2], ", must be ", groups,
                                 " (heads of the states, which all query heads of a key head share)");
}

/// The head of a parameter that group n of `groups` reads.
inline Index parameter_head(const Array& parameter, Index n, Index groups) { return n * parameter.shape[2] / groups; }

/// The vectors of a head's tokens in [B, T, H, d].
template <class S>
Matrix<S> vectors_of(const Array& x, Index b, Index h, Index tokens) {
  Matrix<S> vectors(x.shape[3], tokens);
  for (Index t = 0; t < tokens; ++t)
    for (Index c = 0; c < x.shape[3]; ++c) vectors(c, t) = static_cast<S>(x.number({b, t, h, c}));
  return vectors;
}

/// visit(f), f(b, n) being the transition of group n of a sequence's heads, for queries of type S.
template <class S, class Visit>
decltype(auto) with_transitions(const Inputs& in, const Settings& settings, Index groups, const Visit& visit) {
  for (const auto* parameter : {&in.log_gates, &in.beta, &in.channel_gates, &in.householder, &in.strengths})
    check_parameter_heads(*parameter, groups);
  const auto gates = [&in, groups](Index b, Index n) {
    if (!in.log_gates) return ArrayGates();
    return ArrayGates(*in.log_gates, b, parameter_head(*in.log_gates, n, groups), in.tokens(b));
  };
  const auto numbers = [&in, groups](const Array& x, Index b, Index n) {
    const Index h = parameter_head(x, n, groups);
    return numbers_of(in.tokens(b), [&](Index t) { return x.number({b, t, h}); });
  };
  const auto channel_gates = [&in, groups](Index b, Index n) {
    const Index h = parameter_head(*in.channel_gates, n, groups);
    return ChannelDecay<double>(vectors_of<double>(*in.channel_gates, b, h, in.tokens(b)));
  };
  if (in.householder)
    return visit([&, gates](Index b, Index n) -> ArrayGatesAnd<Householder<S>> {
      const Index h = parameter_head(*in.householder, n, groups), tokens = in.tokens(b);
      Matrix<S> w = vectors_of<S>(*in.householder, b, h, tokens);
      Eigen::VectorXd beta = in.strengths ? numbers(*in.strengths, b, n) : Eigen::VectorXd::Ones(tokens).eval();
      return gates(b, n) * (in.channel_gates ? Householder<S>(std::move(w), std::move(beta), channel_gates(b, n))
                                             : Householder<S>(std::move(w), std::move(beta)));
    });
  if (in.channel_gates)
    return visit([&, gates](Index b, Index n) -> ArrayGatesAnd<ChannelDecay<double>> {
      return gates(b, n) * channel_gates(b, n);
    });
  if (!in.theta) return visit(gates);
  const Index axes = in.theta->dimensions == 2 ? in.theta->shape[0] : 1, d = in.queries.shape[3];
  Eigen::MatrixXd theta(settings.pairs(d), axes);
  for (Index a = 0; a < axes; ++a)
    for (Index j = 0; j < theta.rows(); ++j)
      theta(j, a) = in.theta->dimensions == 2 ? in.theta->number({a, j}) : in.theta->number({j});
  return visit([&, gates, theta](Index b, Index n) -> ArrayGatesAnd<Rotary> {
    if (!in.beta) return gates(b, n) * Rotary(theta, *settings.pairing, d);
    if (in.beta->dimensions == 3)
      return gates(b, n) * Rotary(theta, numbers(*in.beta, b, n).transpose(), *settings.pairing, d);
    const Index h = parameter_head(*in.beta, n, groups);
    return gates(b, n) * Rotary(theta, vectors_of<double>(*in.beta, b, h, in.tokens(b)), *settings.pairing, d);
  });
}

/// The gradient of the gates.
inline const Eigen::VectorXd& log_gates_in(const ArrayGates::Gradient& g) { return g.log_gamma; }
const Eigen::VectorXd& log_gates_in(const auto& g) { return g.template of<ArrayGates>().log_gamma; }

/// Writes gradients of parameters: each number is a sum over the groups that read it, in order.
template <class S, class A>
void write_gradients(const std::vector<typename A::Gradient>& transitions, const Inputs& in, Index groups,
                     const Results& results) {
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
              sum += number(transitions[static_cast<std::size_t>(b * groups + n)], t, c);
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
    write_tokens(results.channel_gates,
                 [](const auto& g, Index t, Index c) { return g.template of<Householder<S>>().log_a(c, t); });
  } else if constexpr (std::is_same_v<A, ArrayGatesAnd<Rotary>>) {
    const bool has_axes = in.theta->dimensions == 2;
    const Index axes = has_axes ? in.theta->shape[0] : 1, pairs = in.theta->shape[has_axes ? 1 : 0];
    write_tokens(results.beta,
                 [&](const auto& g, Index t, Index a) { return g.template of<Rotary>().beta[t * axes + a]; });
    for (Index n = 0; results.theta && n < axes * pairs; ++n) {
      double sum = 0;
      for (const auto& g : transitions) sum += g.template of<Rotary>().theta[n];
      if (has_axes)
        results.theta->set({n / pairs, n % pairs}, sum);
      else
        results.theta->set({n}, sum);
    }
  }
}

/// The transitions of a call, one for each group of query heads, as batches take them: compiled once for a scalar type.
template <class S>
struct CallTransitions {
  const Inputs& in;
  const Settings& settings;
  Index groups;

  void visit(const detail::Visitor<detail::BatchTransitions<S>&>& visit) const;
  /// Then writes their gradients, which `visit` has filled.
  void visit_vjp(const Results& results, const detail::Visitor<detail::VjpTransitions<S>&>& visit) const;
};

template <class S>
void CallTransitions<S>::visit(const detail::Visitor<detail::BatchTransitions<S>&>& visit) const {
  with_transitions<S>(in, settings, groups, [&]<class Given>(const Given& given) {
    detail::BatchTransitionsOf<S, Given> transitions(given);
    visit(transitions);
  });
}

template <class S>
void CallTransitions<S>::visit_vjp(const Results& results,
                                   const detail::Visitor<detail::VjpTransitions<S>&>& visit) const {
  with_transitions<S>(in, settings, groups, [&]<class Given>(const Given& given) {
    using A = detail::TransitionOfBatch<Given>;
    std::vector<typename A::Gradient> gradients;
    detail::VjpTransitionsOf<S, Given> transitions(given, gradients);
    visit(transitions);
    write_gradients<S, A>(gradients, in, groups, results);
  });
}

}  // namespace SYMPOW_NAMESPACE::c

/// What all engines of a scalar type have in common.
#define SYMPOW_C_TRANSITIONS(LINKAGE, Scalar) LINKAGE template struct sympow::c::CallTransitions<Scalar>;
