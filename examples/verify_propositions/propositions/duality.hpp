// Both sides of a duality: a linear system in three forms, its softmax dual, and one matrix of logits and biases for
// both.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <utility>

#include <sympow/systems/linear_systems.hpp>
#include <sympow/systems/softmax_systems.hpp>
#include <sympow/transition/gate_distance.hpp>
#include "propositions/dense_gates.hpp"
#include "propositions/sequence.hpp"

namespace SYMPOW_NAMESPACE::verify::detail {

inline const std::string row_rule_units = ", in units of the row rule";
inline const std::string value_units = "; in units of max|V|";

/// 1/(1 + e^{-z}), as it is written.
[[nodiscard]] inline double sigma(double z) { return 1 / (1 + std::exp(-z)); }

/// A bound in units of the row rule for logits that are off by δ: a weight is then off by δ, a mean by at most 2 δ
/// max|V|, and a unit is at least 8 u max|V|.
template <class Scalar>
[[nodiscard]] Bound shifted_bound(double delta, const std::string& reason = "a logit is rounded more than once") {
  return {1 + delta / (4 * unit_roundoff<Scalar>), reason, "row rule"};
}

/// What two ways to sum up to T log gates differ by at most: each is off by T u times the sum.
[[nodiscard]] inline double cumulative_error(const DenseVector<double>& log_gates) {
  return -2 * static_cast<double>(log_gates.size()) * log_gates.sum() * unit_roundoff<double>;
}

/// A bound in units of the row rule for attention whose biases are sums of these log gates.
template <class Scalar>
[[nodiscard]] Bound bias_bound(const DenseVector<double>& log_gates) {
  return shifted_bound<Scalar>(cumulative_error(log_gates), "a bias is a sum of up to " +
                                                                std::to_string(log_gates.size()) +
                                                                " log gates, and both sides round it at every term");
}

/// Queries, keys and values, one token a column.
template <class Scalar>
struct Tokens {
  Dense<Scalar> Q, K, V;

  [[nodiscard]] Tokens<double> dense() const { return {Q.in_double(), K.in_double(), V.in_double()}; }
  /// Kᵀ Q, one token i a column.
  [[nodiscard]] Dense<double> logits() const { return K.in_double().transpose() * Q.in_double(); }
};

/// Seventy tokens, more than a block of any form, and what the text makes its gates from.
template <class Scalar>
struct DualityInput {
  static constexpr Index d = 6, e = 4, T = 70, inputs = 4;
  static constexpr double tau = 4;  ///< GLA's temperature

  Tokens<Scalar> tokens;
  Dense<Scalar> unit_keys, w;            ///< d × T, of length 1
  DenseVector<double> beta, projection;  ///< T strengths in (.05, 1.95); the text's w in wᵀx
  Dense<double> x, channel_projection;   ///< inputs × T; the text's W in Wx, d × inputs
  DenseVector<double> theta = rope_frequencies<double>(d);

  explicit DualityInput(std::uint64_t seed) {
    Random random(seed);
    tokens = {random.matrix<Scalar>(d, T), random.matrix<Scalar>(d, T), random.matrix<Scalar>(e, T)};
    unit_keys = systems::unit_columns(tokens.K.plain());
    w = systems::unit_columns(random.matrix<Scalar>(d, T));
    beta.resize(T);
    for (double& strength : beta) strength = random.uniform(.05, 1.95);
    projection = random.vector(inputs);
    x = random.matrix(inputs, T);
    channel_projection = random.matrix(d, inputs);
  }

  /// wᵀ x_t, the logits of a scalar gate.
  [[nodiscard]] DenseVector<double> gate_logits() const { return x.transpose() * projection; }
  /// FoX's gate σ(wᵀ x_t).
  [[nodiscard]] Decay scalar_gate() const { return Decay(systems::log_sigmoid(gate_logits())); }
  /// The tokens with keys of length 1.
  [[nodiscard]] Tokens<Scalar> normalized() const { return {tokens.Q, unit_keys, tokens.V}; }
};

/// e^x by entry; -∞ gives 0.
[[nodiscard]] inline Dense<double> exponentials(Dense<double> x) {
  for (Index n = 0; n < x.size(); ++n) x.data()[n] = std::exp(x.data()[n]);
  return x;
}

/// Logits of softmax by columns: exp and division by the sum; -∞ gives 0.
[[nodiscard]] inline Dense<double> softmax(Dense<double> logits) {
  for (Index i = 0; i < logits.cols(); ++i) {
    double largest = -std::numeric_limits<double>::infinity();
    for (Index j = 0; j < logits.rows(); ++j) largest = std::max(largest, logits(j, i));
    for (Index j = 0; j < logits.rows(); ++j) logits(j, i) -= largest;
  }
  Dense<double> weights = exponentials(std::move(logits));
  for (Index i = 0; i < weights.cols(); ++i) {
    const double sum = weights.column(i).sum();
    for (Index j = 0; j < weights.rows(); ++j) weights(j, i) /= sum;
  }
  return weights;
}

/// value(i, j) for token j that token i sees, `future` for those that it does not; token i is column i.
template <class Value>
[[nodiscard]] Dense<double> causal_matrix(Index T, const Value& value,
                                          double future = -std::numeric_limits<double>::infinity()) {
  Dense<double> result = Dense<double>::constant(T, T, future);
  for (Index i = 0; i < T; ++i)
    for (Index j = 0; j <= i; ++j) result(j, i) = value(i, j);
  return result;
}

/// The causal mask: 0 for the past, -∞ for the future.
[[nodiscard]] inline Dense<double> mask(Index T) {
  return causal_matrix(T, [](Index, Index) { return 0.; });
}

/// D_ij = Σ_{s=j+1..i} term(s, i), -∞ for the future: a bias as the text writes it.
template <class Term>
[[nodiscard]] Dense<double> summed_bias(Index T, const Term& term) {
  return causal_matrix(T, [&](Index i, Index j) {
    double sum = 0;
    for (Index s = j + 1; s <= i; ++s) sum += term(s, i);
    return sum;
  });
}

/// Softmax attention by the library, and what its rows are measured in.
template <class Scalar>
struct SoftmaxRows {
  DirectRows<double> rows;
  Dense<Scalar> Y;

  /// The worst row against others, in units of the row rule.
  [[nodiscard]] double disagreement(const Dense<double>& other) const {
    return row_rule<DefaultNormalization, Exponential>(rows, Y, other, unit_roundoff<Scalar>);
  }
  /// As `departure` measures it.
  [[nodiscard]] double departure(const Dense<double>& other) const {
    return detail::departure(rows, Y.in_double(), other, unit_roundoff<Scalar>);
  }
};

/// `gates` are those of the system's transition, dense and by their definition.
template <class Scalar, Transition A>
[[nodiscard]] SoftmaxRows<Scalar> softmax_rows(const systems::System<Exponential, A>& system, const DenseGates& gates,
                                               const Tokens<Scalar>& tokens) {
  const Tokens<double> dense = tokens.dense();
  return {direct_attention(Exponential{}, gates, dense.Q, dense.K, dense.V),
          attention(system.feature, system.transition, tokens.Q, tokens.K, tokens.V)};
}

template <class Scalar>
using LinearForms = Forms<Scalar, Linear, DefaultNormalization>;

/// The three forms of a linear system.
template <class Scalar, Transition A>
[[nodiscard]] LinearForms<Scalar> linear_forms(const systems::System<Linear, A>& system, const DenseGates& gates,
                                               const Tokens<Scalar>& tokens) {
  Options options;
  options.chunk = LinearForms<Scalar>::chunk;
  const auto& [Q, K, V] = tokens;
  const Tokens<double> dense = tokens.dense();
  State<Scalar, Linear> literal(system.feature, Q.rows(), V.rows(), 0);
  return {direct_attention(Linear{}, gates, dense.Q, dense.K, dense.V),
          {attention(system.feature, system.transition, Q, K, V),
           recurrent(system.feature, system.transition, Q, K, V, literal),
           chunked(system.feature, system.transition, Q, K, V, options)}};
}

/// A linear system and its dual on the same tokens.
///
///     o_i = Σ_{j ≤ i} M_ij e^{D_ij} v_j,   the dual's rows: Softmax(M + D) V
///
/// M: logits, what is multiplicative; D: a bias, what is additive, -∞ for the future. T × T both, token i a column.
template <class Scalar>
struct Duality {
  LinearForms<Scalar> linear;
  SoftmaxRows<Scalar> dual;
  Dense<double> V, recurrence;

  /// The worst row of the forms against the text's recurrence, the unrolled sum and the dual's formula, in units of the
  /// row rule.
  [[nodiscard]] double disagreement(const Dense<double>& M, const Dense<double>& D) const {
    const double sides = worse(linear.disagreement(recurrence), linear.disagreement(unrolled(M, D)));
    return worse(sides, dual.disagreement(V * softmax(M + D)));
  }
  /// How far the unrolled sum is from the recurrence.
  [[nodiscard]] double departure(const Dense<double>& M, const Dense<double>& D) const {
    return linear.departure(unrolled(M, D));
  }

 private:
  [[nodiscard]] Dense<double> unrolled(const Dense<double>& M, const Dense<double>& D) const {
    return V * M.entrywise(exponentials(D));
  }
};

template <class Scalar, Transition A>
[[nodiscard]] Duality<Scalar> duality(const systems::System<Linear, A>& system,
                                      const systems::System<Exponential, A>& dual, const DenseGates& gates,
                                      const Tokens<Scalar>& tokens) {
  const Tokens<double> dense = tokens.dense();
  return {linear_forms(system, gates, tokens), softmax_rows(dual, gates, tokens), dense.V,
          gated_recurrence(gates, dense.Q, dense.K, dense.V)};
}

}  // namespace SYMPOW_NAMESPACE::verify::detail
