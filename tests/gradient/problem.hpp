// Random calls under transitions of every kind, with what their gradients must be.
#pragma once

#include <sympow/sympow.hpp>
#include "definition.hpp"

namespace sympow::test {

/// A map of one's own: φ(x) = [1, √2 x, x ⊗ x], κ(s) = (1 + s)².
struct Squares {
  static constexpr Score score = Score::embedded;
  static constexpr bool nonnegative = true, is_squares = true;

  [[nodiscard]] Index dimension(Index d) const { return 1 + d + d * d; }
  template <class X, class Y>
  void embed(const X& x, Y&& y) const {
    const Index d = x.rows();
    for (Index t = 0; t < x.cols(); ++t) {
      y(0, t) = 1;
      for (Index i = 0; i < d; ++i) {
        y(1 + i, t) = std::numbers::sqrt2_v<typename X::Scalar> * x(i, t);
        for (Index j = 0; j < d; ++j) y(1 + d + i * d + j, t) = x(i, t) * x(j, t);
      }
    }
  }
  template <class X, class Y, class DY, class DX>
  void embed_vjp(const X& x, const Y&, const DY& dy, DX&& dx) const {
    const Index d = x.rows();
    for (Index t = 0; t < x.cols(); ++t)
      for (Index i = 0; i < d; ++i) {
        dx(i, t) = std::numbers::sqrt2 * dy(1 + i, t);
        for (Index j = 0; j < d; ++j) dx(i, t) += (dy(1 + d + i * d + j, t) + dy(1 + d + j * d + i, t)) * x(j, t);
      }
  }
};
/// The same with its closed form.
struct ClosedSquares : Squares {
  [[nodiscard]] double kappa(double s) const { return (1 + s) * (1 + s); }
};

/// φ and Dφ for the definition.
[[nodiscard]] verify::DenseFeature dense_squares(Index d);

template <class Scalar>
inline constexpr double unit_roundoff = static_cast<double>(std::numeric_limits<Scalar>::epsilon()) / 2;

/// Inputs of a call, with a gradient of its rows.
template <class Scalar>
struct Problem {
  Matrix<Scalar> Q, K, V, dY;
  Parameters parameters;

  Problem(Random& random, Index d, Index e, Index T, double gates)
      : Q(random.matrix<Scalar>(d, T)),
        K(random.matrix<Scalar>(d, T)),
        V(random.matrix<Scalar>(e, T)),
        dY(random.matrix<Scalar>(e, T)),
        parameters(random, d, T, gates) {}

  /// T_q queries from token `offset` on, T_k keys.
  [[nodiscard]] static Problem seen(Random& random, Index d, Index e, Index T_q, Index T_k, Index offset) {
    Problem x(random, d, e, std::max(T_k, T_q + offset), .1);
    for (auto* rows : {&x.Q, &x.dY}) *rows = rows->leftCols(T_q).eval();
    for (auto* keys : {&x.K, &x.V}) *keys = keys->leftCols(T_k).eval();
    return x;
  }
  [[nodiscard]] Index tokens() const { return K.cols(); }
  [[nodiscard]] Problem part(Index first, Index count) const {
    Problem some = *this;
    for (auto* x : {&some.Q, &some.K, &some.V, &some.dY}) *x = Matrix<Scalar>(x->middleCols(first, count));
    some.parameters = parameters.part(first, count);
    return some;
  }
};

/// The numbers of a call, with a state before it, and a loss on that behind it, where there are any.
template <class Normalization, class Scalar, class F, class A>
[[nodiscard]] GradientCall call_of(const F& feature, const A& transition, const Problem<Scalar>& x,
                                   const Options& options) {
  GradientCall call = verify::gradient_call<Normalization>(feature, transition, x.Q, x.K, x.V, x.dY, options);
  if constexpr (requires { F::is_squares; }) call.feature = dense_squares(x.Q.rows());
  return call;
}
template <class Normalization, class Scalar, class F, class A>
[[nodiscard]] Definition definition_of(const F& feature, const A& transition, const Problem<Scalar>& x,
                                       const Kind& kind, const Options& options) {
  return {call_of<Normalization>(feature, transition, x, options), kind, x.parameters, unit_roundoff<Scalar>};
}

/// Gradients from a state, of a loss on rows and on the state behind them.
template <class Normalization = DefaultNormalization, class Scalar, class F, class A>
[[nodiscard]] Gradients<Scalar, A> from_state(const F& feature, const A& transition, const Problem<Scalar>& x,
                                              const std::type_identity_t<Matrix<Scalar>>& dY,
                                              const State<Scalar, F>& state, StateGradient<Scalar, F>& d_state,
                                              const Options& options = {}) {
  return chunked_vjp<Normalization>(
      feature, transition,
      {.Q = x.Q, .K = x.K, .V = x.V, .dY = dY, .state = state, .d_state = d_state, .options = options});
}

/// Channel gates before reflections.
inline const Kind gated_reflections{.name = "gates * reflections", .steps = Steps::mixing, .is_gated = true};
template <class Scalar>
[[nodiscard]] Householder<Scalar> gated_chain(const Parameters& p) {
  return channel_decay(p.log_a) * householder(p.w.cast<Scalar>(), p.strengths);
}

/// Calls visit(kind, make), make(parameters) being a transition, for all that the score of a power has.
template <class Scalar, class Visit>
void each_transition(const Visit& visit) {
  using P = Parameters;
  const auto split = Pairing::half_split;
  visit(Kind{"stationary"}, [](const P&) { return stationary(); });
  visit(Kind{"constant decay"}, [](const P&) { return constant_decay(.9); });
  visit(Kind{"decay"}, [](const P& p) { return decay(p.log_gamma); });
  visit(Kind{"fixed rates", Steps::fixed_rates}, [](const P& p) { return rotary(p.theta, Pairing::interleaved); });
  visit(Kind{"rates", Steps::rates}, [](const P& p) { return rotary(p.theta, p.beta, Pairing::interleaved); });
  visit(Kind{"decay * rates, halves", Steps::rates, split},
        [=](const P& p) { return decay(p.log_gamma) * rotary(p.theta, p.beta, split); });
  visit(Kind{"positions * constant decay", Steps::positions}, [](const P& p) {
    const auto family = CommutingGenerators<Scalar>::from_frequencies(p.frequencies);
    return structured_rotary(family.in_basis(p.basis.cast<Scalar>()), p.positions) * constant_decay(.95);
  });
  visit(Kind{"channels", Steps::channels}, [](const P& p) { return channel_decay(p.log_a); });
  visit(Kind{"decay * channels", Steps::channels},
        [](const P& p) { return decay(p.log_gamma) * channel_decay(p.log_a); });
  visit(Kind{"reflections", Steps::mixing}, [](const P& p) { return householder(p.w.cast<Scalar>(), p.strengths); });
  visit(Kind{"reflections * decay", Steps::mixing},
        [](const P& p) { return householder(p.w.cast<Scalar>(), p.strengths) * decay(p.log_gamma); });
  visit(gated_reflections, gated_chain<Scalar>);
}
/// One for each of the ways in which keys can move, with gates where they can have them.
template <class Scalar, class F, class Visit>
void one_of_a_kind(const Visit& visit) {
  using P = Parameters;
  visit(Kind{"decay"}, [](const P& p) { return decay(p.log_gamma); });
  visit(Kind{"decay * rates, halves", Steps::rates, Pairing::half_split},
        [](const P& p) { return decay(p.log_gamma) * rotary(p.theta, p.beta, Pairing::half_split); });
  if constexpr (F::score != Score::embedded) {
    visit(Kind{"decay * channels", Steps::channels},
          [](const P& p) { return decay(p.log_gamma) * channel_decay(p.log_a); });
    visit(Kind{"reflections", Steps::mixing}, [](const P& p) { return householder(p.w.cast<Scalar>(), p.strengths); });
    visit(gated_reflections, gated_chain<Scalar>);
  }
}

/// What is compared bit for bit: all that a call gives.
template <class Scalar, class A>
bool equal_bits(const Gradients<Scalar, A>& a, const Gradients<Scalar, A>& b) {
  const Found x = found_in(a), y = found_in(b);
  return x.Q == y.Q && x.K == y.K && x.V == y.V && x.scale == y.scale && x.log_gamma == y.log_gamma &&
         x.log_a == y.log_a && x.theta == y.theta && x.beta == y.beta && x.w == y.w && x.strengths == y.strengths &&
         x.positions == y.positions && x.frequencies == y.frequencies && x.basis == y.basis;
}

}  // namespace sympow::test
