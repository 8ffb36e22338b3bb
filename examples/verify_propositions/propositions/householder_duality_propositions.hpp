// Householder chains: DeltaNet and PaTH, Gated DeltaNet and PaTH-FoX. Propositions 3.D5* and 3.D6*.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>

#include "propositions/positional_listings.hpp"

namespace SYMPOW_NAMESPACE::verify {
namespace detail {

/// 3.D5h and 3.D5a: one factor.
template <class Scalar>
void householder_matrices(Ledger& ledger, Random& random) {
  constexpr Index d = DualityInput<Scalar>::d;
  const Dense<Scalar> v = random.matrix<Scalar>(d, 1);
  const double squared = v.in_double().dot(v.in_double());
  const auto factor = [&](double strength) -> Dense<double> {
    return householder(v, DenseVector<double>::constant(1, 1, strength / squared)).key_matrix(0, d);
  };
  const Dense<double> I = Dense<double>::identity(d), H = factor(2);
  // Entries up to 1 that are rounded four times, in products of d.
  constexpr double bound = 4 * (d + 2) * d * unit_roundoff<double>;
  const double orthogonal = worse((H * H - I).spectral_norm(), (H - H.transpose()).spectral_norm());
  ledger.holds("3.D5h", worse(orthogonal, std::abs(H.determinant() + 1)), bound,
               "a Householder matrix I - 2 v vᵀ/vᵀv is symmetric, orthogonal and a reflection, det -1",
               "D §5, box, \"Householder matrix: …\"");
  const auto defect = [&](double strength) {
    const Dense<double> A = factor(strength);
    return (A.transpose() * A - I).spectral_norm();
  };
  double formula = 0;
  for (const double strength : {0., .7, 1., 2., 3.})
    formula = worse(formula, std::abs(defect(strength) - strength * std::abs(strength - 2)));
  ledger.erratum("3.D5a", defect(0) <= bound ? 1 : 0, 0,
                 "I - α v vᵀ is orthogonal only when α = 2/(vᵀv); residual: other α for which it is",
                 "D §5, box, \"Householder-like matrix: …\"", "‖HᵀH - I‖ = |αvᵀv| |αvᵀv - 2|: when α is 0 or 2/(vᵀv)",
                 formula, 4 * bound);
}

/// 3.D5 to 3.D5g: the recurrence of DeltaNet and its variants.
template <class Scalar>
void delta_rules(Ledger& ledger, const DualityInput<Scalar>& in, const Duality<Scalar>& path) {
  constexpr Index d = DualityInput<Scalar>::d, e = DualityInput<Scalar>::e, T = DualityInput<Scalar>::T;
  const DenseVector<double> open = DenseVector<double>::zero(T);
  const Tokens<Scalar> tokens = in.normalized();
  const Tokens<double> dense = tokens.dense();
  const DenseGates gates = reflections(dense.K, in.beta, open);
  const Dense<double> scores = ascending_products(gates, dense.Q, dense.K);
  const auto delta_net = systems::delta_net(tokens.K, in.beta);
  ledger.holds("3.D5", path.disagreement(scores, mask(T)), 1,
               "duality 5: DeltaNet's recurrence as printed = Σ_j (k_jᵀ Π_{s=j+1..t} (I - β_s k_s k_sᵀ) q_t) v_j, in "
               "ascending order, and under softmax PaTH" +
                   row_rule_units,
               "D §5, \"Under this design …\", \"Resulting in cumulative product of forget …\", \"This structure can "
               "be directly incorporated …\"");
  ledger.control("3.D5r", path.departure(descending_products(gates, dense.Q, dense.K), mask(T)), visible_error,
                 "the product in descending order" + value_units,
                 "D §5, \"Resulting in cumulative product of forget …\"");

  const Dense<double> strengthened = dense.V * in.beta.diagonal_matrix();
  Dense<double> S = Dense<double>::zero(e, d), delta(e, T);
  for (Index t = 0; t < T; ++t) {
    const DenseVector<double> k = dense.K.column(t), error = S * k - dense.V.column(t);
    S -= in.beta[t] * error * k.transpose();
    delta.col(t) = S * dense.Q.column(t);
  }
  ledger.control(
      "3.D5w", path.linear.departure(delta), visible_error,
      "scope: the printed write v kᵀ is the delta rule S - β (S k - v) kᵀ that DeltaNet is derived from" + value_units,
      "D §5, \"DeltaNet is the first model to …\", \"Under this design …\"; D §6, \"As DeltaNet uses Householder "
      "products as …\"");
  const Tokens<Scalar> strong{tokens.Q, tokens.K, systems::delta_rule_values(tokens.V, in.beta)};
  const auto written = linear_forms(delta_net, gates, strong);
  // One unit for the forms, and values β v that are rounded once.
  ledger.holds("3.D5v", worse(written.disagreement(delta), written.disagreement(strengthened * scores)),
               {2, "one unit for the forms, one for values β v that are rounded", "row rule"},
               "DeltaNet writes β v kᵀ; its dual has PaTH's scores and the values β_j v_j" + row_rule_units,
               "extension of D §5, \"Under this design …\"");

  double norm = 0;
  for (Index t = 0; t < T; ++t) norm = worse(norm, gates.matrix(t).spectral_norm());
  delta_net.transition.require_contraction();
  norm = worse(norm, product_of_gates(delta_net.transition, T, d).spectral_norm());
  ledger.holds("3.D5n", norm - 1, static_cast<double>(T * d * (d + 2)) * unit_roundoff<double>,
               "‖k‖ = 1 and β in [0, 2]: every gate and their product have norm at most 1; residual: what they exceed "
               "it by",
               "premise of D §5, \"Specifically …\"");
  const Dense<Scalar> long_key = 3 * tokens.K.part(0, 0, d, 1);
  const auto expanding = householder(long_key, DenseVector<double>::constant(1, 1, .9));
  const Dense<double> expansion = expanding.key_matrix(0, d);
  bool refused = false;
  try {
    expanding.require_contraction();
  } catch (const InvalidGate&) {
    refused = true;
  }
  ledger.control("3.D5u", refused ? expansion.spectral_norm() - 1 : std::numeric_limits<double>::quiet_NaN(), 1,
                 "scope: β in (0, 1) and ‖k‖ = 3, not normalised, do not expand; residual: the norm, less 1",
                 "premise of D §5, \"Specifically …\"");

  const DenseGates others = reflections(in.w.in_double(), in.beta, open);
  const auto proper =
      duality(systems::System{Linear{}, householder(in.w, in.beta)}, systems::path(in.w, in.beta), others, in.tokens);
  const Tokens<double> unscaled = in.tokens.dense();
  ledger.holds("3.D5g", proper.disagreement(ascending_products(others, unscaled.Q, unscaled.K), mask(T)), 1,
               "the same with w_t ≠ k_t, as PaTH has it" + row_rule_units,
               "extension of D §5, \"This structure can be directly incorporated …\"");
}

/// 3.D5e to 3.D5o: the box and the listing of PaTH.
template <class Scalar>
void path_listing(Ledger& ledger, const DualityInput<Scalar>& in, const Duality<Scalar>& path) {
  constexpr Index T = DualityInput<Scalar>::T;
  const Tokens<double> dense = in.normalized().dense();
  const auto means = [&](PathFaults faults) {
    const Dense<double> scores = listed_path_scores(dense.Q, dense.K, in.beta, faults);
    return Dense<double>(attend([&](Index i, Index j) { return std::exp(scores(j, i)); }, dense.V));
  };
  const Dense<double> listed = means({}), scores = listed_path_scores(dense.Q, dense.K, in.beta, {});
  const double agreement = path.dual.disagreement(listed);
  const Dense<double> twice = dense.V * softmax(exponentials(scores) + mask(T));
  ledger.erratum("3.D5e", path.dual.departure(twice), visible_error,
                 "Att_ij = exp(k_jᵀ Π q_i), then SoftMax(Att): an exponential of an exponential" + value_units,
                 "D §5, box, \"This structure can be directly incorporated …\"",
                 "one exponential: exp(score), divided by the causal sum of its row" + row_rule_units, agreement, 1);
  ledger.documents("3.D5c", "PaTH_attn() runs as printed", "D §5, listing",
                   "its return stands outside of the function, a SyntaxError, and beta, d, T and raw_scores are "
                   "defined nowhere");
  const std::string corrected = "H = I - β k kᵀ and P = P @ H[s]: PaTH, once A is divided by the sums of its rows";
  ledger.erratum("3.D5H", path.dual.departure(means({.gate = true})), visible_error,
                 "PaTH_attn() has H = β (I - k kᵀ), its order of factors corrected" + value_units, "D §5, listing",
                 corrected + row_rule_units, agreement, 1);
  ledger.erratum("3.D5o", path.dual.departure(means({.order = true})), visible_error,
                 "PaTH_attn() has P = H[s] @ P, a descending product, its H corrected" + value_units, "D §5, listing",
                 corrected + row_rule_units, agreement, 1);
  ledger.documents(
      "3.D5l", "PaTH_attn() takes Q and K of shape (d, T), as its comment says", "D §5, listing",
      "K[j] is a row: of a (d, T) tensor a coordinate and no token, and the product with P a RuntimeError");
  ledger.holds("3.D5l.fix", agreement, 1,
               "with one token a row, and H and P corrected, PaTH_attn() is PaTH" + row_rule_units,
               "correction of D §5, listing");
}

/// 3.D5t and 3.D5s: products in compact form.
template <class Scalar>
void compact_products(Ledger& ledger, const DualityInput<Scalar>& in) {
  constexpr Index d = DualityInput<Scalar>::d, n = 20;  // more than a block
  const Dense<Scalar> w = in.unit_keys.part(0, 0, d, n);
  const DenseVector<double> beta = in.beta.part(0, 0, n, 1).column(0);
  const Householder<Scalar> chain = householder(w, beta);
  const Dense<double> W = w.in_double(), I = Dense<double>::identity(d), gram = W.transpose() * W;
  // I - W (I + D U)⁻¹ D Wᵀ with the strict upper triangle of WᵀW as U; the strict lower one if `lower`.
  const auto compact = [&](bool lower) {
    Dense<double> system = Dense<double>::identity(n);
    for (Index s = 0; s < n; ++s)
      for (Index t = 0; t < n; ++t)
        if (lower ? t < s : t > s) system(s, t) = beta[s] * gram(s, t);
    return I - W * system.solve(beta.diagonal_matrix() * W.transpose());
  };
  const Dense<double> upwards = product_of_gates(chain, n, d), downwards = upwards.transpose();
  Dense<Scalar> pulled = Dense<Scalar>::identity(d), pushed = pulled, advanced = pulled;
  chain.template apply_to_queries<Scalar>({0, n}, pulled);
  chain.template apply_to_keys<Scalar>({0, n}, pushed);
  chain.template apply_to_state<Scalar>({0, n}, advanced);
  double by_library = distance(pulled.in_double(), upwards);
  by_library = worse(by_library, distance(pushed.in_double(), downwards));
  by_library = worse(by_library, distance(advanced.in_double(), upwards));
  const double by_formula =
      worse((upwards - compact(false)).spectral_norm(), (downwards - compact(true)).spectral_norm());
  // Entries of (I + D U)⁻¹ D are at most 4; sums of n of them on either side, and the dot products of w.
  ledger.holds("3.D5t", worse(by_library, by_formula), 4 * static_cast<double>(n * (n + 2 * d)) * unit_roundoff<Scalar>,
               "UT transform: H_1 … H_T = I - Wᵀ (I + D triu(W Wᵀ, 1))⁻¹ D W, and with tril H_T … H_1; by the formula "
               "and by the library's compact form, T = 20",
               "extension of D §5, \"PaTH supports parallelization across the sequence …\"");
  ledger.control("3.D5s", (upwards - compact(true)).spectral_norm(), visible_error,
                 "triu and tril exchanged; residual: the norm of the difference",
                 "extension of D §5, \"PaTH supports parallelization across the sequence …\"");
}

/// 3.D6 to 3.D6t: with a scalar gate beside.
template <class Scalar>
void gated_chains(Ledger& ledger, const DualityInput<Scalar>& in) {
  constexpr Index T = DualityInput<Scalar>::T;
  const Tokens<Scalar> tokens = in.normalized();
  const Tokens<double> dense = tokens.dense();
  const DenseVector<double> z = in.gate_logits(), log_gates = systems::mamba2_log_gates(z, 0, 0);
  const DenseGates gates = reflections(dense.K, in.beta, log_gates);
  const Dense<double> scores = ascending_products(gates, dense.Q, dense.K);
  const auto both = duality(systems::gated_delta_net(tokens.K, in.beta, log_gates),
                            systems::path_fox(tokens.K, in.beta, log_gates, 1), gates, tokens);
  const Dense<double> D = summed_bias(T, [&](Index s, Index) { return -std::log1p(std::exp(z[s])); });
  ledger.holds("3.D6", both.disagreement(scores, D), bias_bound<Scalar>(log_gates),
               "duality 6: the gates a_t (I - β_t k_t k_tᵀ), a_t = exp(-softplus(wᵀ x_t)); recurrence = Σ_j e^{D_tj} "
               "(k_jᵀ Π q_t) v_j, and under softmax PaTH-FoX" +
                   row_rule_units,
               "D §6, \"As DeltaNet uses Householder products as …\", \"As a result …\"");
  const auto factors = [&](Index i, Index j) {
    double product = std::exp(scores(j, i));
    for (Index s = j + 1; s <= i; ++s) product *= std::exp(log_gates[s]);
    return product;
  };
  ledger.holds("3.D6e", both.dual.disagreement(attend(factors, dense.V)), bias_bound<Scalar>(log_gates),
               "SoftMax(Att + D), Att without an exponential, has the weights exp(score) Π a_s" + row_rule_units,
               "D §6, box, \"As a result …\"");
  ledger.erratum(
      "3.D6b", both.departure(scores, summed_bias(T, [&](Index, Index i) { return std::log(sigma(z[i])) / in.tau; })),
      visible_error,
      "PaTH-FoX beside the gate exp(-softplus(wᵀ x_t)): D_ij = Σ_{s=j+1..t} log σ(w x_t)^{1/τ}, with t read as i" +
          value_units,
      "D §6, box, \"As a result …\"", "D_ij = Σ_{s=j+1..i} log σ(-wᵀ x_s), τ = 1" + row_rule_units,
      both.disagreement(scores, summed_bias(T, [&](Index s, Index) { return std::log(sigma(-z[s])); })),
      bias_bound<Scalar>(log_gates));

  const DenseVector<double> fox = systems::log_sigmoid(z);
  const Dense<double> listed = listed_path_fox(scores, in.projection, in.x), distances = gate_distances(decay(fox), T);
  const Householder<Scalar> chain = householder(tokens.K, in.beta);
  const Dense<Scalar> logits = attention(Linear{}, chain, tokens.Q, tokens.K, Dense<Scalar>::identity(T));
  double triangle = 0;
  for (Index i = 0; i < T; ++i)
    for (Index j = 0; j <= i; ++j)
      triangle = worse(triangle, std::abs(listed(j, i) - static_cast<double>(logits(j, i)) + distances(j, i)) /
                                     (1 + dense.Q.column(i).norm()));
  const double rounding = cumulative_error(fox);
  ledger.documents("3.D6c", "Path-Fox() compiles", "D §6, listing",
                   "its name has a '-' in it, a SyntaxError; and PaTH_attn returns no scores");
  // T steps of 2 d + 5 roundings each of a key of length 1.
  ledger.holds("3.D6c.fix", triangle, static_cast<double>(T * 17) * unit_roundoff<Scalar> + rounding,
               "renamed, and given PaTH's scores, Path-Fox() returns scores + D in its lower triangle: the library's "
               "logits minus its distances, relative to 1 + ‖q‖",
               "correction of D §6, listing");
  const auto path_fox =
      softmax_rows(systems::path_fox(tokens.K, in.beta, fox, 1), reflections(dense.K, in.beta, fox), tokens);
  ledger.erratum("3.D6t", path_fox.departure(dense.V * softmax(listed)), visible_error,
                 "softmax of what Path-Fox() returns is causal: above the diagonal it has 0 and not -∞" + value_units,
                 "D §6, listing", "with the mask it is PaTH-FoX" + row_rule_units,
                 path_fox.disagreement(dense.V * softmax(listed + mask(T))), bias_bound<Scalar>(fox));
}

}  // namespace detail

/// Every statement on gates I - β k kᵀ and their duals. Source: On the Legacy of Linear Transformers in Positional
/// Embeddings, §5 and §6.
template <class Scalar>
void householder_duality_propositions(Ledger& ledger, std::uint64_t seed) {
  const detail::DualityInput<Scalar> in(seed);
  Random random(seed + 1);
  const detail::Tokens<Scalar> tokens = in.normalized();
  const detail::DenseGates gates = detail::reflections(tokens.K.in_double(), in.beta, DenseVector<double>::zero(in.T));
  const auto path =
      detail::duality(systems::delta_net(tokens.K, in.beta), systems::path(tokens.K, in.beta), gates, tokens);
  detail::householder_matrices<Scalar>(ledger, random);
  detail::delta_rules(ledger, in, path);
  detail::path_listing(ledger, in, path);
  detail::compact_products(ledger, in);
  detail::gated_chains(ledger, in);
}

}  // namespace SYMPOW_NAMESPACE::verify
