// Gates that are biases: linear attention and NoPE, RetNet and ALiBi, Mamba-2 or GLA and FoX. Propositions 3.D1 to
// 3.D3*.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "propositions/positional_listings.hpp"

namespace SYMPOW_NAMESPACE::verify {
namespace detail {

template <class Scalar>
void constant_gates(Ledger& ledger, const DualityInput<Scalar>& in) {
  constexpr Index T = DualityInput<Scalar>::T, d = DualityInput<Scalar>::d;
  const Dense<double> logits = in.tokens.logits();
  const auto retain =
      duality(systems::linear_attention(), systems::nope(), scalar_gates(DenseVector<double>::zero(T), d), in.tokens);
  const Dense<double> D = gate_distances(systems::nope().transition, T);
  const bool zero = distance(exponentials(-D), exponentials(mask(T))) == 0;
  ledger.holds("3.D1", zero ? retain.disagreement(logits, mask(T)) : std::numeric_limits<double>::infinity(), 1,
               "duality 1: A = 1 and D_ij = 0, -∞; recurrence = (Q Kᵀ ⊙ e^D) V, and Softmax(Q Kᵀ + D) V is NoPE" +
                   row_rule_units,
               "D §1, \"We begin with the simplest case …\", \"The dual position embedding of vanilla …\"");

  constexpr double lambda = .35;
  const DenseVector<double> log_gates = DenseVector<double>::constant(T, 1, -lambda);
  const DenseGates gates = scalar_gates(log_gates, d);
  const Bound bound = bias_bound<Scalar>(log_gates);
  const auto alibi = systems::alibi(lambda);
  const auto bias = [](double slope) {
    return causal_matrix(T, [=](Index i, Index j) { return slope * static_cast<double>(i - j); });
  };
  const auto decayed = duality(systems::System{Linear{}, alibi.transition}, alibi, gates, in.tokens);
  const double agreement = decayed.disagreement(logits, bias(-lambda));
  const double retnet =
      linear_forms(systems::retnet(std::exp(-lambda)), gates, in.tokens).disagreement(decayed.recurrence);
  ledger.holds("3.D2", worse(agreement, retnet), bound,
               "duality 2: Π γ = γ^{t-j} = exp(-λ(t-j)); RetNet's recurrence = (Q Kᵀ ⊙ e^D) V with D_ij = -λ(i-j), and "
               "Softmax(Q Kᵀ + D) V is ALiBi" +
                   row_rule_units,
               "D §2, \"By setting γ = exp(-λ) …\"");
  ledger.erratum("3.D2s", decayed.departure(logits, bias(lambda)), visible_error, "ALiBi: D_ij = +λ(i-j)" + value_units,
                 "D §2, box, \"AliBi simply adds the releative distance …\"",
                 "D_ij = -λ(i-j), as in the text above the box and in the listing" + row_rule_units, agreement, bound);

  double listed = 0;
  const Dense<double> printed = listed_alibi(T, lambda), far = gate_distances(alibi.transition, T);
  for (Index i = 0; i < T; ++i)
    for (Index j = 0; j <= i; ++j)
      listed = worse(listed, std::abs(printed(j, i) + far(j, i)) / std::max(far(j, i), 1.));
  ledger.holds("3.D2c", listed, static_cast<double>(T) * unit_roundoff<double>,
               "the lower triangle of alibi() is -λ(i-j), minus the distance of ALiBi's gate; relative",
               "D §2, listing");
  ledger.documents("3.D2n", "att_alibi() runs as printed", "D §2, listing",
                   "it uses F, which nothing imports, and calls D_Add D_add: two NameErrors in Python");
  const Tokens<double> dense = in.tokens.dense();
  ledger.erratum("3.D2t", decayed.dual.departure(listed_attention(dense, printed)), visible_error,
                 "att_alibi() is causal: tril() leaves a bias of 0 above the diagonal" + value_units, "D §2, listing",
                 "with -∞ there it is ALiBi" + row_rule_units,
                 decayed.dual.disagreement(listed_attention(dense, printed + mask(T))), bound);
}

/// GLA, whose gates are diagonal.
template <class Scalar>
void channel_gates(Ledger& ledger, const DualityInput<Scalar>& in) {
  constexpr Index T = DualityInput<Scalar>::T, d = DualityInput<Scalar>::d;
  const Dense<double> z = in.channel_projection * in.x;
  Dense<double> a(d, T);
  std::vector<Dense<double>> diagonals;
  for (Index t = 0; t < T; ++t) {
    for (Index channel = 0; channel < d; ++channel) a(channel, t) = std::pow(sigma(z(channel, t)), 1 / in.tau);
    diagonals.push_back(a.column(t).diagonal_matrix());
  }
  const DenseGates gates(std::move(diagonals));
  const auto gla = systems::gla(systems::gla_log_gates(z, in.tau));
  const Tokens<double> dense = in.tokens.dense();
  ledger.documents("3.D3v", "S_{t-1} A_t exists for A_t = σ(W x_t)^{1/τ} in R^d", "D §3, \"In particular …\"",
                   "a vector cannot be multiplied by a matrix from the left; meant is its diagonal matrix");
  // Products of T gates, each of which is off by 4 u.
  ledger.holds("3.D3v.fix",
               duality(gla, systems::dual(gla), gates, in.tokens)
                   .disagreement(ascending_products(gates, dense.Q, dense.K), mask(T)),
               shifted_bound<Scalar>(4 * static_cast<double>(T) * unit_roundoff<double>,
                                     "a product of up to 70 gates is rounded at every factor"),
               "A_t = diag(σ(W x_t)^{1/τ}): GLA's recurrence = its unrolled form, whose products under softmax are FoX "
               "by channel" +
                   row_rule_units,
               "correction of D §3, \"In particular …\"");

  double frozen = 0, summed = 0;
  std::vector<double> between;
  for (Index channel = 0; channel < d; ++channel) {
    const Dense<double> D = gate_distances(gla.transition, T, channel);
    between.push_back(D(0, T - 1));
    for (Index i = 0; i < T; ++i) {
      double product = 1;
      for (Index j = i; j >= 0; product *= a(channel, j), --j) {
        frozen = worse(frozen, std::abs(std::pow(a(channel, i), static_cast<double>(i - j)) - product));
        summed = worse(summed, std::abs(std::exp(-D(j, i)) - product));
      }
    }
  }
  // A sum of T logarithms D that are off by T u D, e^{-D} by at most T u; T factors that are off by 8 u each.
  ledger.erratum("3.D3x", frozen, visible_error,
                 "Π A_s = exp Σ_s log σ(W x_t)^{1/τ}, whose terms do not depend on s; residual: the largest difference",
                 "D §3, \"Above leads to the following cumulative …\"",
                 "x_s: minus the sum is GLA's distance by channel", summed,
                 static_cast<double>(10 * T) * unit_roundoff<double>);
  const auto [nearest, farthest] = std::ranges::minmax(between);
  ledger.control("3.D3g", farthest - nearest, visible_error,
                 "scope: the diagonal gate as one additive D_ij; residual: how far apart its channels' distances of "
                 "the first and the last token are",
                 "D §3, \"The above forget gates can be …\"");
}

/// Mamba-2 and FoX, whose gates are scalars.
template <class Scalar>
void scalar_dualities(Ledger& ledger, const DualityInput<Scalar>& in) {
  constexpr Index T = DualityInput<Scalar>::T, d = DualityInput<Scalar>::d;
  const auto one = [](double x) { return DenseVector<double>::constant(1, 1, x); };
  const DenseVector<double> z = in.gate_logits();
  double conjugate = 0;
  for (int n = -1400; n <= 1400; ++n) {
    const double x = n / 2.;
    const double gate = std::exp(systems::mamba2_log_gates(one(x), 0, 0)[0]);
    conjugate = worse(conjugate, x < 0 ? std::abs(gate - 1 / (1 + std::exp(x)))
                                       : std::abs(gate / (std::exp(-x) / (1 + std::exp(-x))) - 1));
  }
  ledger.holds("3.D3m", conjugate, (2 * 700 + 8) * unit_roundoff<double>,
               "Mamba-2's gate exp(-softplus(z)) = σ(-z) is FoX's with -w: |z| ≤ 700, relative for z ≥ 0",
               "D §3, \"In particular …\"; D §6, \"As DeltaNet uses Householder products as …\"");

  const DenseVector<double> log_gates = systems::gla_log_gates(z, in.tau);
  const Dense<double> D = gate_distances(decay(log_gates), T);
  double frozen = 0, summed = 0;
  for (Index i = 0; i < T; ++i) {
    double product = 1;
    for (Index j = i; j >= 0; product *= std::pow(sigma(z[j]), 1 / in.tau), --j) {
      frozen = worse(frozen, std::abs(std::pow(sigma(z[i]), static_cast<double>(i - j) / in.tau) - product));
      summed = worse(summed, std::abs(std::exp(-D(j, i)) - product));
    }
  }
  ledger.erratum("3.D3y", frozen, visible_error,
                 "the scalar gate: Π A_s = exp Σ_s log σ(w x_t)^{1/τ}; residual: the largest difference",
                 "D §3, \"Simplifying GLA’s forget gate from diagonal …\"", "x_s: minus the sum is the gate's distance",
                 summed, static_cast<double>(10 * T) * unit_roundoff<double>);

  const Dense<double> logits = in.tokens.logits();
  const auto tempered =
      duality(systems::mamba2(log_gates), systems::fox(log_gates), scalar_gates(log_gates, d), in.tokens);
  constexpr double b = .3;
  ledger.erratum(
      "3.D3b", tempered.departure(logits, summed_bias(T, [&](Index, Index i) { return std::log(sigma(z[i] + b)); })),
      visible_error,
      "FoX beside the gate σ(w x_t)^{1/τ}: D_ij = Σ_{s=j+1..t} log σ(w x_t + b), with t read as i and b = .3" +
          value_units,
      "D §3, box, \"The above forget gates can be …\"",
      "D_ij = Σ_{s=j+1..i} log σ(wᵀ x_s)/τ, of both sides" + row_rule_units,
      tempered.disagreement(logits, summed_bias(T, [&](Index s, Index) { return std::log(sigma(z[s])) / in.tau; })),
      bias_bound<Scalar>(log_gates));
  const DenseVector<double> mamba2 = systems::mamba2_log_gates(z, 0, 0);
  ledger.holds(
      "3.D3M",
      duality(systems::mamba2(mamba2), systems::fox(mamba2), scalar_gates(mamba2, d), in.tokens)
          .disagreement(logits, summed_bias(T, [&](Index s, Index) { return -std::log1p(std::exp(z[s])); })),
      bias_bound<Scalar>(mamba2),
      "duality 3: Mamba-2's recurrence = (Q Kᵀ ⊙ e^D) V with D_ij = -Σ softplus(wᵀ x_s), and Softmax(Q Kᵀ + D) "
      "V is FoX" +
          row_rule_units,
      "D §3, \"In particular …\", \"The above forget gates can be …\"");

  const Scalar literal = std::log(1 / (1 + std::exp(Scalar(800))));
  const bool exact = systems::log_sigmoid(one(-800))[0] == -800;
  ledger.control("3.D3u", exact ? (std::isfinite(literal) ? 0 : 1) : std::numeric_limits<double>::quiet_NaN(), 0,
                 "log(σ(z)) computed as written is finite at z = -800, where -softplus(-z) is -800; residual: 1 if not",
                 "extension of D §3, box, \"The above forget gates can be …\"");
}

/// The listing of FoX.
template <class Scalar>
void fox_listing(Ledger& ledger, const DualityInput<Scalar>& in) {
  constexpr Index T = DualityInput<Scalar>::T, d = DualityInput<Scalar>::d;
  const DenseVector<double> log_gates = systems::log_sigmoid(in.gate_logits());
  const Dense<double> listed = listed_fox_pe(in.projection, in.x), D = gate_distances(decay(log_gates), T);
  double triangle = 0;
  for (Index i = 0; i < T; ++i)
    for (Index j = 0; j <= i; ++j) triangle = worse(triangle, std::abs(listed(j, i) + D(j, i)));
  const double rounding = cumulative_error(log_gates);
  ledger.documents("3.D3n", "fox_pe() runs as printed", "D §3, listing",
                   "it defines D_add and returns D_Add: a NameError in Python");
  ledger.documents("3.D3w", "fox_pe() runs with w of shape (d, d), as its comment says", "D §3, listing",
                   "it subtracts a (d, T) from a (T, d) tensor: a RuntimeError; w is of shape (d, 1)");
  ledger.holds("3.D3w.fix", triangle, rounding,
               "with w of shape (d, 1) the lower triangle of fox_pe() is Σ_{s=j+1..t} log σ(wᵀ x_s), minus the "
               "distance of FoX's gate",
               "correction of D §3, listing");
  ledger.documents("3.D3w1", "fox_pe() runs with w of shape (d), which makes a of shape (T), as its comment says",
                   "D §3, listing", "transpose(-1, -2) of a vector is an IndexError");
  const auto fox = softmax_rows(systems::fox(log_gates), scalar_gates(log_gates, d), in.tokens);
  const Tokens<double> dense = in.tokens.dense();
  ledger.erratum("3.D3t", fox.departure(listed_attention(dense, listed)), visible_error,
                 "fox() is causal: tril() leaves a bias of 0 above the diagonal" + value_units, "D §3, listing",
                 "with -∞ there it is FoX" + row_rule_units,
                 fox.disagreement(listed_attention(dense, listed + mask(T))), bias_bound<Scalar>(log_gates));
}

}  // namespace detail

/// Every statement on the dualities of scalar and diagonal gates, and on their listings. Source: On the Legacy of
/// Linear Transformers in Positional Embeddings, §1 to §3.
template <class Scalar>
void bias_duality_propositions(Ledger& ledger, std::uint64_t seed) {
  const detail::DualityInput<Scalar> in(seed);
  ledger.documents("3.C0", "the listings are checked as they are printed",
                   "D §2, listing; D §3, listing; D §4, listing; D §5, listing; D §6, listing",
                   "whether a transcription is faithful is a question about the text; here are the listings' "
                   "algorithms in C++");
  detail::constant_gates(ledger, in);
  detail::channel_gates(ledger, in);
  detail::scalar_dualities(ledger, in);
  detail::fox_listing(ledger, in);
}

}  // namespace SYMPOW_NAMESPACE::verify
