// Gradients through states: the backward pass by chunks is the gradient of the definition, however a sequence is cut;
// and each part of its formulas is missed where it is left out.
#pragma once

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include <sympow/verify/proposition.hpp>
#include "propositions/chunked_gradients.hpp"
#include "propositions/largest.hpp"

namespace SYMPOW_NAMESPACE::verify {
namespace detail {

/// How far the gradients by chunks are from those by definition.
template <class Scalar>
[[nodiscard]] double chunks_apart(const GradientProblem& p, Index chunk, Broken broken = Broken::nothing) {
  return gradients_apart(p, chunked_gradients<Scalar>(p, chunk, broken), defined_gradients(p),
                         arithmetic_of_chunks<Scalar>(p, chunk))
      .residual;
}

/// B: the formulas, for every power, normalisation, transition and length of chunks.
template <class Scalar>
void chunked_backward(Ledger& ledger, Random& random) {
  const std::array<std::pair<Moves, const char*>, 4> kinds = {{{Moves::nothing, "gates"},
                                                               {Moves::channels, "channels"},
                                                               {Moves::rotary, "rotary"},
                                                               {Moves::householder, "householder"}}};
  for (const auto& [moves, name] : kinds) {
    Largest apart;
    for (const int P : {1, 2, 3, 4})
      for (const Closing closing : {Closing::never, Closing::slowly, Closing::fast}) {
        if (moves == Moves::householder && P > 1) continue;
        const auto p = drawn_tame_problem<Scalar>(
            random, {.P = P, .means = P % 2 == 0, .moves = moves, .closing = closing, .T = 13});
        for (const Index chunk : {1, 5, 13}) apart.add(chunks_apart<Scalar>(p, chunk));
      }
    ledger.holds(std::string("grad.B.") + name, apart.value(), {1, {}, gradient_unit},
                 "the backward pass by chunks of 1, 5 and 13 tokens, with an adjoint state H, is the gradient of the "
                 "definition in everything: q, k, v, scale, gates, parameters, initial state",
                 "(extension)");
  }
}

/// S: what a state's gradient is, and what is handed from one call to the one before it.
template <class Scalar>
void split_backward(Ledger& ledger, Random& random) {
  constexpr Index T = 20, cut = 11, chunk = 4;
  const auto p = drawn_tame_problem<Scalar>(random, {.P = 3, .means = false, .moves = Moves::rotary, .T = T});
  const auto whole = chunked_gradients<Scalar>(p, chunk);
  GradientProblem early = p.segment(0, cut), late = p.segment(cut, T - cut);
  early.call.initial = p.call.initial;
  // The late call begins at the state and the frame which the early one leaves.
  const auto state = state_after(early);
  for (Index t = 0; t < cut; ++t) late.mu += p.beta[t] * p.theta;
  late.set_steps();
  late.call.initial = state;
  late.call.d_final = p.call.d_final;
  const auto of_late = chunked_gradients<Scalar>(late, chunk);
  const auto early_with = [&](const ProblemGradients& after, bool with_frame) {
    GradientProblem q = early;
    q.call.d_final = after.common.initial;
    q.d_mu = with_frame ? after.rotary.mu : Vector<Wide>(0 * after.rotary.mu);
    return chunked_gradients<Scalar>(q, chunk);
  };
  const auto joined = [&](const ProblemGradients& a) {
    ProblemGradients g = whole;
    g.common.Q << a.common.Q, of_late.common.Q;
    g.common.K << a.common.K, of_late.common.K;
    g.common.V << a.common.V, of_late.common.V;
    g.common.log_gamma << a.common.log_gamma, of_late.common.log_gamma;
    g.common.scale = a.common.scale + of_late.common.scale;
    g.common.initial = a.common.initial;
    g.rotary.beta << a.rotary.beta, of_late.rotary.beta;
    g.rotary.theta = a.rotary.theta + of_late.rotary.theta;
    g.rotary.mu = a.rotary.mu;
    return g;
  };
  // The gradient that is handed over is rounded, and as a loss of its own it is of the size of all that comes later.
  const Bound two_calls{3, "both calls and the gradient between them are rounded", gradient_unit};
  const auto arithmetic = arithmetic_of_chunks<Scalar>(p, 1);
  ledger.holds("grad.S1", gradients_apart(p, joined(early_with(of_late, true)), whole, arithmetic).residual, two_calls,
               "two calls with the gradient (dS, dZ, dμ) of the state between them are one call, rotary and decay",
               "(extension)");
  ledger.control("grad.S2", gradients_apart(p, joined(early_with(of_late, false)), whole, arithmetic).residual,
                 two_calls, "without dμ, the gradient of the frame, dβ and dθ of the first call are as good",
                 "(extension)");

  GradientProblem rows_only = late;
  rows_only.call.d_final.setZero();
  rows_only.d_mu.setZero();
  const auto g = defined_gradients(rows_only);
  const auto gauge = [](const GradientProblem& of, const ProblemGradients& found, const Matrix<Wide>& S) {
    const Dense<double> H(Matrix<double>(found.common.initial.template cast<double>()));
    const auto through =
        through_planes(H, Dense<double>(Matrix<double>(S.template cast<double>())), of.call.Q.rows(), of.call.degree);
    return Vector<Wide>(found.rotary.mu + through.plain().template cast<Wide>());
  };
  const double of_state = static_cast<double>(g.common.initial.norm() * state.norm());
  const double rounded =
      3 * static_cast<double>(state.size()) * unit_roundoff<double>;  // ⟨dS, L S⟩ in double, ‖L_u‖ = 3
  ledger.holds("grad.S3", static_cast<double>(gauge(rows_only, g, state).norm()) / of_state, rounded,
               "gauge: dμ + ⟨dS, L_u S⟩ = 0 where the loss sees rows only; relative to ‖dS‖ ‖S‖", "(extension)");
  const auto d = defined_gradients(p);
  const Vector<Wide> at_start = gauge(p, d, p.call.initial);
  const Matrix<Wide> last = state_after(p);
  ProblemGradients end;
  end.common.initial = p.call.d_final;
  end.rotary.mu = p.d_mu;
  const double size = static_cast<double>(d.common.initial.norm() * p.call.initial.norm() +
                                          p.call.d_final.norm() * last.norm() + p.d_mu.norm());
  ledger.holds("grad.S4", static_cast<double>((at_start - gauge(p, end, last)).norm()) / size, rounded,
               "a gauge that is not 0, of a loss on the final state itself, passes a segment unchanged; relative to "
               "‖dS_0‖ ‖S_0‖ + ‖dS_T‖ ‖S_T‖ + ‖dμ_T‖",
               "(extension)");
}

/// S5: losses that see a part of a call only.
template <class Scalar>
void partial_losses(Ledger& ledger, Random& random) {
  constexpr Index T = 11;
  Largest apart;
  for (const auto& shape : {ProblemShape{.P = 2, .moves = Moves::rotary, .T = T},
                            ProblemShape{.P = 1, .means = false, .moves = Moves::householder, .T = T},
                            ProblemShape{.P = 3, .means = false, .moves = Moves::channels, .T = T}})
    for (const int which : {0, 1, 2, 3}) {
      auto p = drawn_tame_problem<Scalar>(random, shape);
      for (Index i = 0; i < T; ++i)
        if (which < 3 && i != (which == 0 ? T - 1 : which == 1 ? 0 : -1)) p.call.dY.col(i).setZero();
      if (which != 2) p.call.d_final.setZero(), p.d_mu.setZero();
      for (const Index chunk : {3, 11, 64}) apart.add(chunks_apart<Scalar>(p, chunk));
    }
  ledger.holds("grad.S5", apart.value(), {1, {}, gradient_unit},
               "the same of a loss on the last row, the first row, the final state or all rows alone; chunks longer "
               "than the sequence",
               "(extension)");
}

/// O5: channels beside a scalar gate.
template <class Scalar>
void channels_and_gates(Ledger& ledger, Random& random) {
  const auto p = drawn_tame_problem<Scalar>(random, {.P = 3, .means = false, .moves = Moves::channels});
  const auto g = defined_gradients(p);
  const auto bounds = gradient_bounds(p.call);
  Largest apart;
  for (Index t = 0; t < g.log_a.cols(); ++t)
    apart.add(static_cast<double>(std::abs(g.log_a.col(t).sum() - 3 * g.common.log_gamma[t]) / bounds.step_levers[t]));
  ledger.holds("grad.O5", apart.value(), {1, {}, gradient_unit},
               "Σ_c d log a_tc = P d log γ_t: flows of channels and of the scalar gate", "(extension)");
}

/// X: the formulas with a part left out.
template <class Scalar>
void broken_backward(Ledger& ledger, Random& random) {
  struct Case {
    Broken broken;
    int P;
    bool means;
    Moves moves;
    const char* what;
  };
  const Case cases[] = {
      {Broken::delta, 2, true, Moves::nothing, "the normaliser's part -δ/den of g"},
      {Broken::slope, 3, false, Moves::nothing, "P in P x^{P-1}"},
      {Broken::through, 2, true, Moves::nothing, "⟨H, b S⟩, what flows through a whole chunk, of d log γ"},
      {Broken::own_gate, 2, true, Moves::nothing, "what keeps pairs j = t, of a token with itself, out of d log γ_t"},
      {Broken::gauge, 2, true, Moves::rotary, "dμ + ⟨dS, L S⟩ of the final state"},
      {Broken::sign, 2, true, Moves::rotary, "the minus of the keys' angles"},
      {Broken::strict_products, 1, false, Moves::householder, "dU + dUᵀ, w inside T"},
      {Broken::moved_rows, 1, false, Moves::householder, "TᵀWᵀ times the gradient of the moved queries, of dG"},
      {Broken::first_gate, 2, true, Moves::nothing, "the first gate of a chunk in H"},
      {Broken::order, 2, true, Moves::nothing,
       "the order, in which keys read H before their own chunk's rows are in it"}};
  int number = 0;
  for (const auto& [broken, P, means, moves, what] : cases) {
    const auto p =
        drawn_tame_problem<Scalar>(random, {.P = P, .means = means, .moves = moves, .closing = Closing::slowly});
    const double honest = chunks_apart<Scalar>(p, 6), without = chunks_apart<Scalar>(p, 6, broken);
    ledger.control("grad.X" + std::to_string(++number), honest <= 1 ? without : 0, {1, {}, gradient_unit},
                   std::string("left out of the backward pass without loss: ") + what, "(extension)");
  }
}

}  // namespace detail

/// What holds of gradients through states, and the controls that show it.
///
/// grad.B to grad.X. Inputs are drawn from the seed. Source: none; docs of the library.
template <class Scalar>
void gradient_state_propositions(Ledger& ledger, std::uint64_t seed) {
  Random random(seed);
  detail::chunked_backward<Scalar>(ledger, random);
  detail::split_backward<Scalar>(ledger, random);
  detail::partial_losses<Scalar>(ledger, random);
  detail::channels_and_gates<Scalar>(ledger, random);
  detail::broken_backward<Scalar>(ledger, random);
}

}  // namespace SYMPOW_NAMESPACE::verify
