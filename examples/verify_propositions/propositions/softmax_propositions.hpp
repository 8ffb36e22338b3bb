// Softmax attention, what its mask knows of order, and positional embeddings inside of it: propositions 3.A1 to 3.A6.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "propositions/full_attention.hpp"

namespace SYMPOW_NAMESPACE::verify {
namespace detail {

/// The columns in another order.
template <class Scalar>
[[nodiscard]] Dense<Scalar> permuted(const Dense<Scalar>& X, const std::vector<Index>& order) {
  Dense<Scalar> result(X.rows(), X.cols());
  for (Index t = 0; t < X.cols(); ++t)
    for (Index n = 0; n < X.rows(); ++n) result(n, t) = X(n, order[static_cast<std::size_t>(t)]);
  return result;
}

template <class Scalar>
[[nodiscard]] Tokens<Scalar> permuted(const Tokens<Scalar>& tokens, const std::vector<Index>& order) {
  return {permuted(tokens.Q, order), permuted(tokens.K, order), permuted(tokens.V, order)};
}

/// The largest weight of a column on tokens that come after it.
[[nodiscard]] inline double mass_on_the_future(const Dense<double>& weights) {
  double largest = 0;
  for (Index i = 0; i < weights.cols(); ++i) {
    double mass = 0;
    for (Index j = i + 1; j < weights.rows(); ++j) mass += weights(j, i);
    largest = worse(largest, mass);
  }
  return largest;
}

template <class Scalar>
void softmax_forms(Ledger& ledger, const DualityInput<Scalar>& in) {
  constexpr Index T = DualityInput<Scalar>::T, d = DualityInput<Scalar>::d;
  const Dense<double> logits = in.tokens.logits(), V = in.tokens.V.in_double();
  const auto nope = softmax_rows(systems::nope(), scalar_gates(DenseVector<double>::zero(T), d), in.tokens);
  const Dense<double> loop = attend([&](Index i, Index j) { return std::exp(logits(j, i)); }, V);
  ledger.holds("3.A1", worse(nope.disagreement(loop), nope.disagreement(V * softmax(logits + mask(T)))), 1,
               "softmax attention: matrix form (without 1/√d) = recurrent form, in units of the row rule",
               "D §Softmax Attention, eq. (Matrix Form), eq. (Recurrent Form)");
  ledger.control("3.A1s", nope.departure(V * softmax(logits / std::sqrt(static_cast<double>(d)) + mask(T))),
                 visible_error,
                 "reading: the matrix form as typeset, with the 1/√d that is omitted from there on; in units of max|V|",
                 "D §Softmax Attention, eq. (Matrix Form), \"For simplicity …\"");
  const Dense<double> ones = causal_matrix(T, [](Index, Index) { return 1.; });
  ledger.holds("3.A2", nope.disagreement(V * softmax(logits + ones)), 1,
               "a mask with values in {-∞, 1}, printed (-∞, 1), is one in {-∞, 0}: softmax does not see a shift; in "
               "units of the row rule",
               "D §Softmax Attention, eq. (Matrix Form), \"Causal softmax attention takes the form …\"");
  const Dense<double> triangle = causal_matrix(T, [](Index, Index) { return 1.; }, 0);
  ledger.control("3.A2m", mass_on_the_future(softmax(logits + triangle)), visible_error,
                 "reading: M is a lower triangular matrix that is added to the logits; residual: a row's weight on the "
                 "future",
                 "D §Softmax Attention, eq. (Matrix Form), \"Causal softmax attention takes the form …\"");
}

template <class Scalar>
void order_in_the_mask(Ledger& ledger, const DualityInput<Scalar>& in, Random& random) {
  constexpr Index T = DualityInput<Scalar>::T, d = DualityInput<Scalar>::d, last = T - 1;
  const DenseGates open = scalar_gates(DenseVector<double>::zero(T), d);
  std::vector<Index> rolled(static_cast<std::size_t>(T)), shuffled(rolled.size());
  for (Index t = 0; t < T; ++t) {
    rolled[static_cast<std::size_t>(t)] = (t + T - 3) % T;
    shuffled[static_cast<std::size_t>(t)] = t;
  }
  for (Index t = last - 1; t > 0; --t)
    std::swap(shuffled[static_cast<std::size_t>(t)], shuffled[static_cast<std::size_t>(random.integer(0, t))]);

  const auto causal = softmax_rows(systems::nope(), open, in.tokens);
  const auto causal_rolled = softmax_rows(systems::nope(), open, permuted(in.tokens, rolled));
  const FullAttention<Scalar> full(in.tokens), full_rolled(permuted(in.tokens, rolled));
  const Dense<Scalar> full_Y = full.Y;
  // Two results of the library, each within a unit of the truth.
  ledger.erratum("3.A3", causal_rolled.departure(permuted(causal.Y.in_double(), rolled)), visible_error,
                 "permuting the tokens permutes the output 'as shown above', where attention is causal; in units of "
                 "max|V|",
                 "D §Softmax Attention, \"As shown above …\"",
                 "without the mask it does; the mask itself encodes order",
                 full_rolled.disagreement(permuted(full_Y.in_double(), rolled)),
                 {2, "two results of the library, a unit each", "row rule"});
  const auto causal_shuffled = softmax_rows(systems::nope(), open, permuted(in.tokens, shuffled));
  const double moved = distance(causal_shuffled.Y.column(last).in_double(), causal.Y.column(last).in_double());
  ledger.holds("3.A3b.fix", moved / full.unit[last], {2, "two results of the library, a unit each", "row rule"},
               "a causal row does not see in which order the tokens before it stand, in units of the row rule",
               "correction of D §Softmax Attention, \"As shown above …\"");
}

template <class Scalar>
void embeddings(Ledger& ledger, const DualityInput<Scalar>& in) {
  constexpr Index T = DualityInput<Scalar>::T, d = DualityInput<Scalar>::d;
  const Dense<double> V = in.tokens.V.in_double(), logits = in.tokens.logits();
  const DenseGates products = reflections(in.w.in_double(), in.beta, DenseVector<double>::zero(T));
  const auto path = softmax_rows(systems::path(in.w, in.beta), products, in.tokens);
  const Dense<double> multiplied = ascending_products(products, in.tokens.Q.in_double(), in.tokens.K.in_double());
  double off_one = 0;
  for (Index i = 0; i < T; ++i) {
    double printed = 0, normalizer = 0;
    for (Index j = 0; j <= i; ++j) {
      printed += std::exp(logits(j, i));  // D_ii is the empty product
      normalizer += std::exp(multiplied(j, i));
    }
    off_one = worse(off_one, std::abs(printed / normalizer - 1));
  }
  ledger.erratum("3.A4", off_one, visible_error,
                 "multiplicative embedding: D_tj in the numerator, where no j is bound, read as D_tt; residual: by how "
                 "much weights miss the sum 1",
                 "D §Positional Embedding, eq. (Multiplicative PE)",
                 "exp(q_tᵀ D_ti k_i), here of PaTH, in units of the row rule",
                 path.disagreement(V * softmax(multiplied + mask(T))), 1);

  const DenseVector<double> log_gates = systems::log_sigmoid(in.gate_logits());
  const Dense<double> D = gate_distances(decay(log_gates), T);
  const auto fox = softmax_rows(systems::fox(log_gates), scalar_gates(log_gates, d), in.tokens);
  ledger.holds("3.A5", fox.disagreement(attend([&](Index i, Index j) { return std::exp(logits(j, i) - D(j, i)); }, V)),
               bias_bound<Scalar>(log_gates),
               "additive embedding: d_ti inside of softmax, here of FoX, in units of the row rule",
               "D §Positional Embedding, eq. (Additive PE)");

  double error = 0, largest = 0;
  for (Index i = 0; i < T; ++i) {
    double product = 1;
    for (Index j = i; j >= 0; --j) {
      const double sum = std::exp(logits(j, i) - D(j, i)), factors = std::exp(logits(j, i)) * product;
      error = worse(error, std::abs(sum / factors - 1));
      largest = std::max({largest, D(j, i), std::abs(logits(j, i))});
      product *= std::exp(log_gates[j]);
    }
  }
  // A sum of T logarithms and its exponential are off by (T + 2) u of the sum, as an exponent; T products by 2 T u.
  ledger.holds("3.A6", error, (static_cast<double>(T + 4) * (largest + 2)) * unit_roundoff<double>,
               "what dual means: under exp a log gate that is added is a gate that multiplies, exp(q·k + D) = exp(q·k) "
               "Π A_s; relative, in double",
               "D §Forget Gate as Positional Embedding, \"Using this insight …\"");
}

}  // namespace detail

/// Every statement on softmax attention and its positional embeddings before any gate. Source: On the Legacy of Linear
/// Transformers in Positional Embeddings, Softmax Attention and Position of Tokens.
template <class Scalar>
void softmax_propositions(Ledger& ledger, std::uint64_t seed) {
  const detail::DualityInput<Scalar> in(seed);
  Random random(seed + 1);
  detail::softmax_forms(ledger, in);
  detail::order_in_the_mask(ledger, in, random);
  detail::embeddings(ledger, in);
}

}  // namespace SYMPOW_NAMESPACE::verify
