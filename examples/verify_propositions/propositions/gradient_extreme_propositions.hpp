// Gradients of numbers near the ends of the type, of long sequences, and of quotients of nothing.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "propositions/chunked_gradients.hpp"
#include "propositions/gradient_library_propositions.hpp"

namespace SYMPOW_NAMESPACE::verify {
namespace detail {

/// 10^x in float; in double, whose exponents reach eight times as far, 10^(8 x).
template <class Scalar>
[[nodiscard]] Wide far(double x) {
  return std::pow(10.0L, static_cast<Wide>(x) * (sizeof(Scalar) == sizeof(float) ? 1 : 8));
}

/// Numbers below those of the type, times what is asked of a row.
template <class Scalar>
[[nodiscard]] Wide least_number(Wide asked) {
  return asked * static_cast<Wide>(std::numeric_limits<Scalar>::denorm_min());
}

/// E: P = 8 by chunks of 8, and P = 1.
template <class Scalar>
void gradients_of_extremes(Ledger& ledger, Random& random) {
  constexpr Index T = 24, chunk = 8;
  const SymmetricPower<8> power;
  const auto check = [&](const std::string& id, const std::string& what, bool without, Wide least, const auto& change) {
    GradientProblem p = drawn_problem<Scalar>(random, {.P = 8, .T = T, .d = 3, .has_state = false});
    change(p);
    for (auto* x : {&p.call.Q, &p.call.K, &p.call.V, &p.call.dY})
      *x = x->template cast<Scalar>().template cast<Wide>().eval();
    p = problem_of<Normalized, Scalar>(power, std::move(p));
    const auto exact = defined_gradients(p);
    const auto apart = [&](const ProblemGradients& found) {
      return gradients_apart(p, found, exact, arithmetic_of_chunks<Scalar>(p, chunk), least).residual;
    };
    ledger.holds("grad." + id, apart(by_chunked_vjp<Normalized, Moves::nothing, Scalar>(power, p, chunk, {})),
                 {1, {}, gradient_unit}, "chunked_vjp, P = 8, means, " + what, "(extension)");
    if (without)
      ledger.control("grad." + id + ".plain", apart(chunked_gradients<Scalar>(p, chunk)), {1, {}, gradient_unit},
                     "the same by the formulas alone, without exponents", "(extension)");
  };
  const std::string times = sizeof(Scalar) == sizeof(float) ? "" : "8·";
  // What a key of 10^-6 has is divided by its length, from every row.
  const Wide of_keys = least_number<Scalar>(1000 * T * far<Scalar>(6));
  check("E1", "keys of 10^±" + times + "6", true, of_keys, [&](GradientProblem& p) {
    for (Index t = 0; t < T; ++t) p.call.K.col(t) *= far<Scalar>(random.uniform() < .5 ? 6 : -6);
  });
  check("E2", "keys of 10^" + times + "6, then 10^-" + times + "6, γ = .8", true, of_keys, [&](GradientProblem& p) {
    for (Index t = 0; t < T; ++t) p.call.K.col(t) *= far<Scalar>(t < T / 2 ? 6 : -6);
    p.call.log_decay.assign(T, std::log(.8));
  });
  check("E3", "gradients of rows of 10^±" + times + "25", false, 0, [&](GradientProblem& p) {
    for (Index t = 0; t < T; ++t) p.call.dY.col(t) *= far<Scalar>(random.uniform() < .5 ? 25 : -25);
  });
  check("E4", "queries of 10^±" + times + "25", true, 0, [&](GradientProblem& p) {
    for (Index t = 0; t < T; ++t) p.call.Q.col(t) *= far<Scalar>(random.uniform() < .5 ? 25 : -25);
  });
  check("E5", "values of 10^" + times + "15", false, 0, [&](GradientProblem& p) { p.call.V *= far<Scalar>(15); });

  GradientProblem sums = drawn_problem<Scalar>(random, {.P = 1, .means = false, .T = T, .has_state = false});
  for (Index t = 0; t < T; ++t) sums.call.Q.col(t) *= far<Scalar>(random.uniform() < .5 ? -30 : 15);
  sums.call.Q = sums.call.Q.template cast<Scalar>().template cast<Wide>().eval();
  ledger.holds("grad.E6", chunked_apart<Unnormalized, Moves::nothing, Scalar>(Linear{}, sums, chunk),
               {1, {}, gradient_unit},
               "chunked_vjp, P = 1, sums, queries of 10^-" + times + "30 and 10^" + times +
                   "15: dq from weights that have no ‖q‖ in them",
               "(extension)");

  GradientProblem p =
      drawn_problem<Scalar>(random, {.P = 8, .moves = Moves::channels, .T = T, .d = 3, .has_state = false});
  p.log_a.col(5).setConstant(-8);  // e^-64 of the first tokens is all that two rows see
  p.call.K.col(5).setZero(), p.call.K.col(6).setZero();
  p = problem_of<Normalized, Scalar>(power, std::move(p));
  ledger.holds(
      "grad.E7",
      gradients_apart(p, by_chunked_vjp<Normalized, Moves::channels, Scalar>(power, p, 2 * chunk, {}),
                      defined_gradients(p), arithmetic_of_chunks<Scalar>(p, 2 * chunk), least_number<Scalar>(1000))
          .residual,
      {1, {}, gradient_unit}, "chunked_vjp, P = 8, all channels nearly close, and rows see what they leave alone",
      "(extension)");
}

/// F: long sequences.
template <class Scalar>
void gradients_of_long_sequences(Ledger& ledger, Random& random) {
  constexpr Index T = 300, chunk = 32, closed = 200;
  const SymmetricPower<2> square;
  const auto long_problem = [&](Moves moves, Closing closing, Index tokens) {
    return problem_of<Normalized, Scalar>(
        square, drawn_problem<Scalar>(random, {.moves = moves, .closing = closing, .T = tokens, .has_state = false}));
  };
  const auto apart = [&](const GradientProblem& p, const ProblemGradients& found) {
    return gradients_apart(p, found, defined_gradients(p), arithmetic_of_chunks<Scalar>(p, chunk)).residual;
  };
  GradientProblem p = long_problem(Moves::nothing, Closing::slowly, T);
  p.call.log_decay[closed] = -std::numeric_limits<double>::infinity();
  for (Index i = closed; i < T; ++i) p.call.dY.col(i) *= 1024;
  const auto found = by_chunked_vjp<Normalized, Moves::nothing, Scalar>(square, p, chunk, {});
  ledger.holds("grad.F7.long", apart(p, found), {1, {}, gradient_unit},
               "chunked_vjp of 300 tokens, a closed gate and large gradients behind it: d log γ and all others",
               "(extension)");
  ledger.holds("grad.F9.long",
               static_cast<double>(std::abs(found.common.log_gamma[closed]) + std::abs(found.common.log_gamma[0])), 0,
               "the closed gate and, without an initial state, γ_1 have exactly the gradient 0", "(extension)");
  const GradientProblem turns = long_problem(Moves::rotary, Closing::fast, 96);
  ledger.holds("grad.F11.long",
               apart(turns, by_chunked_vjp<Normalized, Moves::rotary, Scalar>(square, turns, chunk,
                                                                              Vector<Wide>::Zero(turns.theta.size()))),
               {1, {}, gradient_unit}, "chunked_vjp of 96 tokens under rotary, fast gates: dβ, dθ and all others",
               "(extension)");
}

}  // namespace detail

/// Gradients at the ends.
///
/// grad.E1 to grad.E7, grad.F7.long, grad.F9.long, grad.F11.long. Inputs are drawn from the seed. Source:
/// none; docs of the library.
template <class Scalar>
void gradient_extreme_propositions(Ledger& ledger, std::uint64_t seed) {
  Random random(seed);
  detail::gradients_of_extremes<Scalar>(ledger, random);
  detail::gradients_of_long_sequences<Scalar>(ledger, random);
}

}  // namespace SYMPOW_NAMESPACE::verify
