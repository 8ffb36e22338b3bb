// The gradients that the library gives of a problem, in the terms of its definition.
#pragma once

#include <type_traits>
#include <utility>

#include <sympow/attention/batch_vjp.hpp>
#include <sympow/attention/gradients.hpp>
#include <sympow/structured/commuting_generators.hpp>
#include <sympow/transition/householder.hpp>
#include <sympow/transition/product.hpp>
#include <sympow/transition/rotary.hpp>
#include <sympow/transition/structured_rotary.hpp>
#include "propositions/gradient_problem.hpp"

namespace SYMPOW_NAMESPACE::verify::detail {

template <class Scalar>
[[nodiscard]] Matrix<Scalar> narrow(const Matrix<Wide>& x) {
  return x.template cast<Scalar>();
}
[[nodiscard]] inline Vector<double> narrow(const Vector<Wide>& x) { return x.template cast<double>(); }

/// The transition of a problem: its scalar gates times what moves its keys.
template <Moves moves, class Scalar>
[[nodiscard]] auto transition_of(const GradientProblem& p) {
  const Index T = p.call.tokens();
  const auto gates = decay(Eigen::Map<const Vector<double>>(p.call.log_decay.data(), T));
  if constexpr (moves == Moves::nothing) return gates;
  if constexpr (moves == Moves::channels) return gates * channel_decay(Matrix<double>(p.log_a.template cast<double>()));
  if constexpr (moves == Moves::rotary) return gates * rotary(narrow(p.theta), narrow(p.beta), Pairing::interleaved);
  if constexpr (moves == Moves::householder) return gates * householder(narrow<Scalar>(p.w), narrow(p.beta));
  if constexpr (moves == Moves::structured) {
    const auto family = CommutingGenerators<Scalar>::from_frequencies(Matrix<double>(p.lambda.template cast<double>()))
                            .in_basis(Matrix<Scalar>::Identity(p.call.Q.rows(), p.call.Q.rows()));
    return gates * structured_rotary(family, Matrix<double>(p.r.template cast<double>()));
  }
}

/// In long double. `frame` is dμ_0.
template <Moves moves, class Scalar, class A>
[[nodiscard]] ProblemGradients in_wide(const Gradients<Scalar, A>& g, const Vector<Wide>& frame) {
  const auto wide = [](const auto& x) { return x.template cast<Wide>().eval(); };
  ProblemGradients found;
  found.common.Q = wide(g.Q), found.common.K = wide(g.K), found.common.V = wide(g.V);
  found.common.scale = g.scale;
  if constexpr (moves == Moves::nothing) {
    found.common.log_gamma = wide(g.transition.log_gamma);
  } else {
    found.common.log_gamma = wide(g.transition.left().log_gamma);
    const auto& of = g.transition.right();
    if constexpr (moves == Moves::channels) found.log_a = wide(of.log_a);
    if constexpr (moves == Moves::rotary) found.rotary = {wide(of.theta), wide(of.beta), frame};
    if constexpr (moves == Moves::householder) found.householder = {wide(of.w), wide(of.beta)};
    if constexpr (moves == Moves::structured)
      found.structured = {wide(of.positions), wide(of.frequencies), wide(of.basis)};
  }
  return found;
}

/// `attention_vjp` of a problem without states, in Scalar. It has no frame: `frame` is what dμ_0 is to be.
template <class Normalization, Moves moves, class Scalar, class F>
[[nodiscard]] ProblemGradients by_attention_vjp(const F& feature, const GradientProblem& p, const Vector<Wide>& frame) {
  const auto& call = p.call;
  const Options options{.scale = static_cast<double>(call.scale), .mask = call.mask};
  return in_wide<moves>(attention_vjp<Normalization>(feature, transition_of<moves, Scalar>(p),
                                                     {.Q = narrow<Scalar>(call.Q),
                                                      .K = narrow<Scalar>(call.K),
                                                      .V = narrow<Scalar>(call.V),
                                                      .dY = narrow<Scalar>(call.dY),
                                                      .options = options}),
                        frame);
}

/// A problem that begins at a state of the library and ends with a loss on one.
template <Moves moves, class Scalar, class F>
struct ResumedProblem {
  GradientProblem p;
  State<Scalar, F> state;

  /// `drawn` without its initial state, behind the state that `before` leaves.
  ResumedProblem(const F& feature, GradientProblem drawn, const GradientProblem& before)
      : p(std::move(drawn)), state(feature, p.call.Q.rows(), p.call.V.rows()) {
    Workspace<Scalar> workspace;
    absorb(feature, transition_of<moves, Scalar>(before), narrow<Scalar>(before.call.K), narrow<Scalar>(before.call.V),
           state, workspace);
    p.call.initial.resize(state.value_dimension() + 1, state.normalizer().size());
    p.call.initial << state.values().template cast<Wide>(), state.normalizer().transpose().template cast<Wide>();
    if (moves == Moves::rotary) p.mu = state.frame().numbers().template cast<Wide>();
    p.set_steps();
  }

  /// `chunked_vjp`, in Scalar.
  template <class Normalization>
  [[nodiscard]] ProblemGradients by_chunked_vjp(Index chunk) const {
    const auto& call = p.call;
    const Index e = call.V.rows();
    const Options options{.scale = static_cast<double>(call.scale), .chunk = chunk};
    StateGradient<Scalar, F> adjoint(state.feature(), call.Q.rows(), narrow<Scalar>(call.d_final).topRows(e),
                                     narrow<Scalar>(call.d_final).row(e).transpose(),
                                     moves == Moves::rotary ? narrow(p.d_mu) : Vector<double>());
    const auto g = chunked_vjp<Normalization>(state.feature(), transition_of<moves, Scalar>(p),
                                              {.Q = narrow<Scalar>(call.Q),
                                               .K = narrow<Scalar>(call.K),
                                               .V = narrow<Scalar>(call.V),
                                               .dY = narrow<Scalar>(call.dY),
                                               .state = state,
                                               .d_state = adjoint,
                                               .options = options});
    ProblemGradients found = in_wide<moves>(g, adjoint.frame().template cast<Wide>());
    found.common.initial.resize(e + 1, adjoint.normalizer().size());
    found.common.initial << adjoint.values().template cast<Wide>(),
        adjoint.normalizer().transpose().template cast<Wide>();
    return found;
  }
};

/// `chunked_vjp` of a problem without states, in Scalar; dμ_0 as in `by_attention_vjp`.
template <class Normalization, Moves moves, class Scalar, class F>
[[nodiscard]] ProblemGradients by_chunked_vjp(const F& feature, const GradientProblem& p, Index chunk,
                                              const Vector<Wide>& frame) {
  const auto& call = p.call;
  const Options options{.scale = static_cast<double>(call.scale), .chunk = chunk};
  return in_wide<moves>(chunked_vjp<Normalization>(feature, transition_of<moves, Scalar>(p),
                                                   {.Q = narrow<Scalar>(call.Q),
                                                    .K = narrow<Scalar>(call.K),
                                                    .V = narrow<Scalar>(call.V),
                                                    .dY = narrow<Scalar>(call.dY),
                                                    .options = options}),
                        frame);
}

}  // namespace SYMPOW_NAMESPACE::verify::detail
