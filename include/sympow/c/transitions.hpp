// The transition of a call, of what is given: gates, and rotary positions, channel gates or Householder vectors.
#pragma once

#include <utility>

#include <sympow/c/inputs.hpp>
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
  if (in.channel_gates)
    return visit([&, gates](Index b, Index n) -> ArrayGatesAnd<ChannelDecay<double>> {
      const Index h = parameter_head(*in.channel_gates, n, groups);
      return gates(b, n) * ChannelDecay<double>(vectors_of<double>(*in.channel_gates, b, h, in.tokens(b)));
    });
  if (in.householder)
    return visit([&, gates](Index b, Index n) -> ArrayGatesAnd<Householder<S>> {
      const Index h = parameter_head(*in.householder, n, groups), tokens = in.tokens(b);
      return gates(b, n) *
             Householder<S>(vectors_of<S>(*in.householder, b, h, tokens),
                            in.strengths ? numbers(*in.strengths, b, n) : Eigen::VectorXd::Ones(tokens).eval());
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

}  // namespace SYMPOW_NAMESPACE::c
