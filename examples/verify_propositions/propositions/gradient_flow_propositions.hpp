// Gradients of gates and angles: flows, sums of true terms, and what is lost where they are differences of longer sums.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include <sympow/verify/proposition.hpp>
#include "propositions/chunked_gradients.hpp"
#include "propositions/flows_by_halves.hpp"
#include "propositions/largest.hpp"

namespace SYMPOW_NAMESPACE::verify {
namespace detail {

/// Roundings that sums of n numbers in long double may be off by, relative to the sum of their sizes.
[[nodiscard]] inline double wide_roundings(Index n) {
  return static_cast<double>(n) * static_cast<double>(std::numeric_limits<Wide>::epsilon());
}

/// F1 to F6: what couplings c_ij = ∂loss/∂log s_ij add up to, in long double.
template <class Scalar>
void coupling_identities(Ledger& ledger, Random& random) {
  constexpr Index T = 24, d = 4;
  const auto p = drawn_problem<Scalar>(random, {.moves = Moves::rotary, .T = T, .d = d, .has_state = false});
  const GradientReference g = gradient_reference(p.call);
  Largest rows, queries, keys, suffixes;
  Wide later = 0;
  const Matrix<Wide> sizes = g.coupling.cwiseAbs();
  const auto of_row = static_cast<double>(sizes.colwise().sum().maxCoeff()),
             of_key = static_cast<double>(sizes.rowwise().sum().maxCoeff()), size = static_cast<double>(sizes.sum());
  for (Index t = T - 1; t >= 0; --t) {
    const Wide q_dq = p.call.Q.col(t).dot(g.Q.col(t)), k_dk = p.call.K.col(t).dot(g.K.col(t));
    rows.add(static_cast<double>(std::abs(g.coupling.col(t).sum())) / of_row);
    queries.add(static_cast<double>(std::abs(q_dq)) / of_row);
    keys.add(static_cast<double>(std::abs(k_dk - 2 * g.coupling.row(t).sum())) / of_key);
    later += (q_dq - k_dk) / 2;
    suffixes.add(static_cast<double>(std::abs(later - g.log_gamma[t])) / size);
  }
  // A coupling is rounded by the d sums of its logit, multiplied by 1/cos of the pair, and by T sums.
  const Bound bound{64 * wide_roundings(T + d), "in long double; logits near 0 are off by more than their size"};
  ledger.holds("grad.F1", rows.value(), wide_roundings(T),
               "rows of means: Σ_j c_ij = 0, c_ij = ∂loss/∂log s_ij; relative to max_i Σ_j |c_ij|", "(extension)");
  ledger.holds("grad.F2", std::max(queries.value(), static_cast<double>(std::abs(g.scale)) / size), bound,
               "means of powers: q_i·dq_i = 0, and so d scale = 0; relative to max_i Σ_j |c_ij|", "(extension)");
  ledger.holds("grad.F3", keys.value(), bound, "k_j·dk_j = P Σ_i c_ij; relative to max_j Σ_i |c_ij|", "(extension)");
  ledger.holds("grad.F4", suffixes.value(), bound,
               "d log γ_t = Σ_{i≥t} (q_i·dq_i - k_i·dk_i)/P, up to roundings of all later pairs; relative to Σ |c|",
               "(extension)");

  GradientCall e = p.call;
  e.score = Score::exponential;
  const GradientReference of_exp = gradient_reference(e);
  const GradientPairs pairs(e);
  const Wide most = of_exp.coupling.cwiseAbs().rowwise().sum().maxCoeff();
  Largest trick, by_values;
  for (Index j = 0; j < T; ++j) {
    const Wide l = of_exp.coupling.row(j).sum();
    trick.add(static_cast<double>(std::abs(e.K.col(j).dot(of_exp.K.col(j)) - l) / most));
    // dv⁺_j = [dv_j; d of a factor of key j], the latter Σ_i s_ij (-δ_i/den_i)
    Wide last = 0;
    for (Index i = j; i < T; ++i) last -= pairs.scores(j, i) / pairs.denominator[i] * e.dY.col(i).dot(pairs.Y.col(i));
    by_values.add(static_cast<double>(std::abs(e.V.col(j).dot(of_exp.V.col(j)) + last - l) / most));
  }
  ledger.control("grad.F5", trick.value(), 1e-3,
                 "k_j·dk_j = Σ_i c_ij for e^x as well: it is Σ x c there; relative to max_j Σ_i |c_ij|", "(extension)");
  const Bound of_values{64 * wide_roundings(T), "in long double; [v; 1]·g cancels"};
  ledger.holds("grad.F6", by_values.value(), of_values,
               "Σ_i c_ij = v⁺_j·dv⁺_j for every κ, here e^x, v⁺ = [v; 1]; relative to max_j Σ_i |c_ij|", "(extension)");
}

/// Σ_{i≥t} (q_i·dq_i - k_i·dk_i)/P: d log γ_t but for roundings.
[[nodiscard]] inline Vector<Wide> suffix_log_gates(const GradientProblem& p, const GradientReference& g) {
  Vector<Wide> sums = Vector<Wide>::Zero(p.call.tokens());
  Wide sum = 0;
  for (Index t = sums.size() - 1; t >= 0; --t)
    sums[t] = sum += (p.call.Q.col(t).dot(g.Q.col(t)) - p.call.K.col(t).dot(g.K.col(t))) / p.call.degree;
  return sums;
}

/// F7 to F11: differences instead of flows, where later tokens have gradients of another size.
template <class Scalar>
void suffix_sums(Ledger& ledger, Random& random) {
  constexpr Index T = 48, chunk = 8, closed = 25;
  auto p = drawn_tame_problem<Scalar>(random,
                                      {.moves = Moves::rotary, .closing = Closing::fast, .T = T, .has_state = false});
  p.d_mu.setZero();
  for (Index i = closed; i < T; ++i) p.call.dY.col(i) *= 0x1p26L;
  const auto g = chunked_gradients<Scalar>(p, chunk), exact = defined_gradients(p);
  const auto arithmetic = arithmetic_of_chunks<Scalar>(p, chunk);
  ledger.holds("grad.F7", gradients_apart(p, g, exact, arithmetic).residual, {1, {}, gradient_unit},
               "d log γ, dβ, dθ and all others by flows, fast gates and large gradients behind them", "(extension)");
  ProblemGradients other = g;
  other.common.log_gamma = suffix_log_gates(p, g.common);
  other.common.log_gamma[0] = 0;  // where they know that without an initial state it is
  ledger.control("grad.F8", gradients_apart(p, other, exact, arithmetic).residual, {1, {}, gradient_unit},
                 "d log γ as good by suffix sums of q·dq - k·dk", "(extension)");
  // By absolute angles: ⟨dq_i, J q_i⟩ + ⟨dk_i, J k_i⟩ of all later tokens.
  other = g;
  Vector<Wide> sums = Vector<Wide>::Zero(p.theta.size());
  other.rotary.theta.setZero();
  for (Index t = T - 1; t >= 0; --t) {
    for (Index u = 0; u < sums.size(); ++u) {
      for (const auto& [x, dx] : {std::pair{&p.call.Q, &g.common.Q}, std::pair{&p.call.K, &g.common.K}})
        sums[u] += (*dx)(2 * u + 1, t) * (*x)(2 * u, t) - (*dx)(2 * u, t) * (*x)(2 * u + 1, t);
      other.rotary.theta[u] += p.beta[t] * sums[u];
    }
    other.rotary.beta[t] = t > 0 ? p.theta.dot(sums) : Wide(0);
  }
  ledger.control("grad.F11", gradients_apart(p, other, exact, arithmetic).residual, {1, {}, gradient_unit},
                 "dβ and dθ as good by absolute angles, suffix sums of ⟨dq, J q⟩ + ⟨dk, J k⟩", "(extension)");

  p.call.log_decay[closed] = -std::numeric_limits<double>::infinity();
  const GradientReference by_flows = chunked_gradients<Scalar>(p, chunk).common;
  ledger.holds("grad.F9", static_cast<double>(std::abs(by_flows.log_gamma[closed]) + std::abs(by_flows.log_gamma[0])),
               0, "a closed gate and, without an initial state, γ_1 have exactly the gradient 0 by flows",
               "(extension)");
  ledger.control("grad.F10", static_cast<double>(std::abs(suffix_log_gates(p, by_flows)[closed])), 0,
                 "a closed gate has exactly the gradient 0 by suffix sums", "(extension)");
}

/// F12 and O3: how flows are added up.
template <class Scalar>
void sums_of_flows(Ledger& ledger, Random& random) {
  constexpr Index n = 37;
  const Matrix<Scalar> pairs_of = random.matrix<Scalar>(n, n);
  Vector<double> by_halves = Vector<double>::Zero(n);
  add_flows_by_halves(pairs_of, 0, n, by_halves);
  Largest apart;
  for (Index t = 1; t < n; ++t) {
    const Matrix<double> through = pairs_of.block(0, t, t, n - t).template cast<double>();
    apart.add(std::abs(by_halves[t] - through.sum()) / through.cwiseAbs().sum());
  }
  ledger.holds("grad.F12", apart.value(), 2 * n * n / 4 * unit_roundoff<double>,
               "flows by halves: suffix sums over the right one and sums before t over the left one, no difference; "
               "relative to Σ |f|",
               "(extension)");

  // Under a full mask a step is passed in both directions.
  auto p = drawn_tame_problem<Scalar>(random, {.P = 2, .moves = Moves::rotary, .T = 15, .has_state = false});
  p.call.mask = full();
  p.call.log_decay.assign(15, 0);
  p.call = without_degenerate_rows(p.call);
  const GradientPairs pairs(p.call);
  const auto exact = rotary_gradient(gradient_reference(p.call), p.theta, p.beta);
  const auto bounds = rotary_bounds(gradient_bounds(p.call), p.call, p.theta, p.beta);
  Matrix<Wide> found = Matrix<Wide>::Zero(1, 15);
  for (Index i = 0; i < 15; ++i) {
    const Wide delta = p.call.dY.col(i).dot(pairs.Y.col(i));
    for (Index j = 0; j < 15; ++j) {
      const auto &q = pairs.queries[static_cast<std::size_t>(i)].absolute(),
                 &k = pairs.keys[static_cast<std::size_t>(j)].absolute();
      const Wide dx = 2 * pairs.weights(j, i) * pairs.logits(j, i) * (p.call.V.col(j).dot(p.call.dY.col(i)) - delta) /
                      pairs.denominator[i];
      Wide f = 0;
      for (Index u = 0; u < p.theta.size(); ++u)
        f += dx * p.theta[u] * (k[2 * u + 1] * q[2 * u] - k[2 * u] * q[2 * u + 1]);
      for (Index t = std::min(i, j) + 1; t <= std::max(i, j); ++t) found(0, t) += j < i ? f : -f;
    }
  }
  ledger.holds("grad.O3", worst_entry("d beta", found, exact.beta.transpose(), bounds.beta.transpose()).residual,
               {1, {}, gradient_unit}, "a full mask, rotary: dβ_t = Σ_{j<t≤i} f_ij - Σ_{i<t≤j} f_ij", "(extension)");
}

}  // namespace detail

/// What gradients of gates and angles are sums of, and what they are no differences of.
///
/// grad.F1 to grad.F12, grad.O3. Inputs are drawn from the seed. Source: none; docs of the library.
template <class Scalar>
void gradient_flow_propositions(Ledger& ledger, std::uint64_t seed) {
  Random random(seed);
  detail::coupling_identities<Scalar>(ledger, random);
  detail::suffix_sums<Scalar>(ledger, random);
  detail::sums_of_flows<Scalar>(ledger, random);
}

}  // namespace SYMPOW_NAMESPACE::verify
