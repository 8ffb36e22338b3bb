// Gradients where something is 0: rows that say nothing, closed gates, queries and keys of length 0, a scale of 0.
#pragma once

#include <cmath>
#include <limits>
#include <string>

#include <sympow/verify/proposition.hpp>
#include "propositions/chunked_gradients.hpp"
#include "propositions/largest.hpp"

namespace SYMPOW_NAMESPACE::verify {
namespace detail {

/// The largest |difference| of the gradients of two calls; not a number if one is not finite.
[[nodiscard]] inline double difference(const GradientReference& a, const GradientReference& b) {
  Largest most;
  const auto add = [&](const auto& x, const auto& y) {
    for (Index n = 0; n < x.size(); ++n) most.add(static_cast<double>(std::abs(x.data()[n] - y.data()[n])));
  };
  add(a.Q, b.Q), add(a.K, b.K), add(a.V, b.V), add(a.log_gamma, b.log_gamma);
  return most.value();
}

/// G1 to G3: rows and gates without anything.
template <class Scalar>
void rows_that_say_nothing(Ledger& ledger, Random& random) {
  constexpr Index T = 24, d = 4, chunk = 8, closed = 12;
  auto p = drawn_problem<Scalar>(random, {.T = T, .d = d, .has_state = false});
  p.call.Q.col(5).setZero();
  p.call.K.col(7).setZero();
  for (Index c = 0; c < d; ++c)  // row 1 is at right angles to all that it sees
    for (Index t = 0; t < 3; ++t)
      if (c < 2)
        p.call.Q(c, 1) = 0;
      else
        p.call.K(c, t) = 0;
  p.call.log_decay[closed] = -std::numeric_limits<double>::infinity();
  GradientProblem without = p, deep = p;
  for (const Index row : {1, 5}) without.call.dY.col(row).setZero();
  deep.call.log_decay[closed] = -1e5;
  const auto left = [](const GradientReference& g) {
    return static_cast<double>(g.Q.col(1).norm() + g.Q.col(5).norm() + g.K.col(7).norm() +
                               std::abs(g.log_gamma[closed]) + std::abs(g.log_gamma[0]));
  };
  const std::string statement =
      ": q = 0, all scores 0, k = 0, γ = 0: the gradients there are 0, and what the loss says of such rows changes no "
      "bit "
      "elsewhere";
  const auto add = [&](const std::string& id, const std::string& by, const auto& gradients) {
    const GradientReference g = gradients(p);
    ledger.holds(id, difference(g, gradients(without)) + left(g), 0, by + statement, "(extension)");
    ledger.holds(id + ".deep", difference(g, gradients(deep)), 0,
                 by + ": log γ = -∞ is the limit of log γ = -10⁵, bit for bit", "(extension)");
  };
  add("grad.G1", "by definition", [](const GradientProblem& x) { return gradient_reference(x.call); });
  add("grad.G2", "by chunks", [](const GradientProblem& x) { return chunked_gradients<Scalar>(x, chunk).common; });
}

/// G5 to G8: what is not without gradient.
template <class Scalar>
void zeros_with_gradients(Ledger& ledger, Random& random) {
  auto p = drawn_problem<Scalar>(random, {.P = 1, .means = false});
  p.call.Q.col(5).setZero();
  p.call.K.col(7).setZero();
  const GradientArithmetic arithmetic{unit_roundoff<Scalar>, 6};
  const auto exact = defined_gradients(p);
  ledger.holds("grad.G5", gradients_apart(p, chunked_gradients<Scalar>(p, 6), exact, arithmetic).residual,
               {1, {}, gradient_unit},
               "P = 1, sums: the gradients of q = 0 and k = 0 are Σ b k_j (v_j·dy_i) and the like", "(extension)");
  ledger.control("grad.G6", static_cast<double>(std::min(exact.common.Q.col(5).norm(), exact.common.K.col(7).norm())),
                 0, "P = 1, sums: the gradients of q = 0 and k = 0 are 0", "(extension)");
  p.call.scale = 0;
  ledger.holds(
      "grad.G7", gradients_apart(p, chunked_gradients<Scalar>(p, 6), defined_gradients(p), arithmetic).residual,
      {1, {}, gradient_unit}, "scale = 0: d scale = Σ q_i·dq'_i with q' = scale·q, without a division", "(extension)");

  auto constant = drawn_problem<Scalar>(random, {.means = false, .has_state = false}).call;
  const auto loss = [&](double log_gamma) {
    constant.log_decay.assign(constant.log_decay.size(), log_gamma);
    return constant.dY.cwiseProduct(GradientPairs(constant).Y).sum();
  };
  const Wide closed = loss(-std::numeric_limits<double>::infinity()), size = constant.dY.norm() * constant.V.norm();
  const Wide by_logarithm = gradient_reference(constant).log_gamma.sum();
  ledger.holds("grad.G8", static_cast<double>(std::abs(by_logarithm)), 0, "a constant gate γ = 0: d/dlog γ is 0",
               "(extension)");
  ledger.control("grad.G9", static_cast<double>(std::abs(loss(std::log(1e-6)) - closed) / (1e-6L * size)), 1e-5,
                 "a constant gate γ = 0: d/dγ is 0 (it has the scores of neighbours); relative to ‖dY‖ ‖V‖",
                 "(extension)");
}

/// H9: states from their successors.
template <class Scalar>
void states_backwards(Ledger& ledger, Random& random) {
  constexpr Index T = 200, D = 10;
  const Matrix<Scalar> x = random.matrix<Scalar>(D, T);
  const double gamma = sizeof(Scalar) == sizeof(float) ? .9 : .75;
  Vector<Scalar> S = Vector<Scalar>::Zero(D), first;
  for (Index t = 0; t < T; ++t) {
    S = static_cast<Scalar>(gamma) * S + x.col(t);
    if (t == 0) first = S;
  }
  for (Index t = T - 1; t > 0; --t) S = (S - x.col(t)) / static_cast<Scalar>(gamma);
  ledger.control(
      "grad.H9", static_cast<double>((S - first).norm() / first.norm()), 1e-3,
      "states are recovered from their successors, S_{t-1} = (S_t - v φᵀ)/γ, over 200 tokens; relative to ‖S_1‖",
      "(extension)");
}

/// G4: the quotient rule where there is nothing to divide by.
template <class Scalar>
void derivative_of_nothing(Ledger& ledger, Random& random) {
  const Vector<Scalar> q = Vector<Scalar>::Zero(3), dq = random.vector<Scalar>(3);
  Scalar den = 0, d_den = 0, num = 0, d_num = 0;
  for (int j = 0; j < 4; ++j) {
    const Vector<Scalar> k = random.vector<Scalar>(3);
    const Scalar v = static_cast<Scalar>(random.normal()), x = q.dot(k), dx = dq.dot(k);
    den += x * x, d_den += 2 * x * dx, num += v * x * x, d_num += 2 * v * x * dx;
  }
  const Scalar slope = (d_num - num / den * d_den) / den;
  ledger.control("grad.G4", std::isnan(slope) ? 1 : 0, 0,
                 "where all scores are 0 the quotient rule of Σ s v / Σ s gives a number; residual: slopes that are "
                 "none",
                 "(extension)");
}

}  // namespace detail

/// What is exactly 0 in gradients, and what is not.
///
/// grad.G1 to grad.G9, grad.H9. Inputs are drawn from the seed. Source: none; docs of the library.
template <class Scalar>
void gradient_limit_propositions(Ledger& ledger, std::uint64_t seed) {
  Random random(seed);
  detail::rows_that_say_nothing<Scalar>(ledger, random);
  detail::zeros_with_gradients<Scalar>(ledger, random);
  detail::states_backwards<Scalar>(ledger, random);
  detail::derivative_of_nothing<Scalar>(ledger, random);
}

}  // namespace SYMPOW_NAMESPACE::verify
