// When the rows of attention are distributions: even powers, odd powers, and a gate that is 0.
#pragma once

#include <algorithm>
#include <limits>

#include <sympow/transition/decay.hpp>
#include <sympow/transition/product.hpp>
#include <sympow/transition/rotary.hpp>
#include "propositions/sequence.hpp"

namespace SYMPOW_NAMESPACE::verify {
namespace detail {

template <class Scalar>
void closed_gate(Ledger& ledger, const Sequence<Scalar>& x) {
  constexpr Index closed = 7;
  DenseVector<double> log_gamma = x.log_gamma;
  log_gamma[closed] = -std::numeric_limits<double>::infinity();
  const auto s = forms(SymmetricPower<4>{}, decay(log_gamma) * rotary(x.theta, Pairing::interleaved), x.Q, x.K, x.V);
  Dense<double> expected = s.rows.Y;  // an independent value for the row in question only
  for (Index r = 0; r < x.e; ++r) expected(r, closed) = x.v(closed)[r];
  ledger.holds("D7", s.disagreement(expected), 1,
               "γ_i = 0, which γ in [0, 1] allows, gives Y_i = V_i; in units of the row rule",
               "A §3.1, \"The basic idea of gating is …\"; B §2, \"The basic idea of gating is …\"");
}

/// Attention of the library without gates, in double.
template <class Normalization, int P, class Scalar>
[[nodiscard]] Dense<double> ungated_rows(const Dense<Scalar>& Q, const Dense<Scalar>& K, const Dense<Scalar>& V) {
  return Dense<Scalar>(attention<Normalization>(SymmetricPower<P>{}, stationary(), Q, K, V)).in_double();
}

/// The smallest entry.
[[nodiscard]] inline double smallest(const Dense<double>& x) {
  return *std::min_element(x.data(), x.data() + x.size());
}

template <class Scalar>
void even_powers(Ledger& ledger, const Sequence<Scalar>& x) {
  // Values e_j: row j of column i is the weight of token j.
  const Dense<double> A = ungated_rows<Normalized, 4>(x.Q, x.K, Dense<Scalar>::identity(x.T));
  double sums = 0, future = 0;
  for (Index i = 0; i < x.T; ++i) {
    sums = worse(sums, std::abs(A.column(i).sum() - 1));
    for (Index j = i + 1; j < x.T; ++j) future = worse(future, std::abs(A(j, i)));
  }
  const double rounding = static_cast<double>(x.T + 8) * unit_roundoff<Scalar>;
  ledger.holds("D1", worse(worse(sums, -smallest(A)), future), rounding,
               "even p: the weights A_i. are not negative, sum to 1, and are 0 on the future",
               "A §A.1.1, \"In practice …\"; B §1, \"It is important that the power …\"; C §2, \"Raising each inner "
               "product to an …\"");

  const Dense<double> Y = ungated_rows<Normalized, 4>(x.Q, x.K, x.V);
  double outside = 0;
  for (Index r = 0; r < x.e; ++r) {
    double least = x.v(0)[r], most = least;
    for (Index i = 0; i < x.T; ++i) {
      least = std::min(least, x.v(i)[r]);
      most = std::max(most, x.v(i)[r]);
      outside = worse(outside, worse(least - Y(r, i), Y(r, i) - most));
    }
  }
  ledger.holds("D2", outside / x.V.largest(), rounding,
               "even p: Y_i is a convex combination of V_1 … V_i; how far it is outside, in units of max |V|",
               "A §A.1.1, \"In turn …\"; B §1, \"In turn …\"; C §1, \"This ensures that each normalized output …\"");
}

/// Σ_j s_ij of every row, with the scores of a power alone.
template <int P, class Scalar>
[[nodiscard]] Dense<double> denominators(const Dense<Scalar>& Q, const Dense<Scalar>& K) {
  return ungated_rows<Unnormalized, P>(Q, K, Dense<Scalar>::constant(1, Q.cols(), 1));
}

/// How many entries are not positive.
[[nodiscard]] inline double not_positive(const Dense<double>& x) {
  return static_cast<double>(std::count_if(x.data(), x.data() + x.size(), [](double entry) { return entry <= 0; }));
}

template <class Scalar>
void vanishing_scores(Ledger& ledger, const Sequence<Scalar>& x, Random& random) {
  constexpr Index T = 5;
  Dense<Scalar> Q = Dense<Scalar>::zero(2, T), K = Q;
  for (Index i = 0; i < T; ++i) Q(0, i) = static_cast<Scalar>(random.normal());
  for (Index i = 0; i < T; ++i) K(1, i) = static_cast<Scalar>(random.normal());
  const Dense<double> zero = denominators<4>(Q, K), generic = denominators<4>(x.Q, x.K);
  const Dense<Scalar> V = random.matrix<Scalar>(2, T);
  double rows = 0;  // the library's answer where there is no distribution is 0
  for (const Dense<Scalar>& Y : forms(SymmetricPower<4>{}, stationary(), Q, K, V).outputs)
    rows = worse(rows, Y.largest());
  ledger.erratum("D3", not_positive(zero), 0,
                 "an even p 'guarantees that the denominator is positive': rows where it is not, for q along e_1 and "
                 "keys along e_2",
                 "B §1, \"It is important that the power …\"",
                 "the denominator is ≥ 0, and where it is 0 the row has no distribution (the library's is 0)",
                 worse(worse(-smallest(zero), -smallest(generic)), rows), 0);

  const auto squares = [](const Dense<Scalar>& q, const Dense<Scalar>& k) {
    return Dense<Scalar>(symmetric_power<2>(q.plain()).transpose() * symmetric_power<2>(k.plain())).in_double();
  };
  const Dense<double> terms = squares(Q, K);
  ledger.erratum("D4", not_positive(terms), 0, "'an even power makes the term positive': terms that are not",
                 "C §2, \"Raising each inner product to an …\"", "an even power makes it ≥ 0",
                 worse(-smallest(terms), -smallest(squares(x.Q, x.K))), 0);
}

template <class Scalar>
void odd_powers(Ledger& ledger) {
  Dense<Scalar> Q = Dense<Scalar>::zero(2, 2), K = Dense<Scalar>::identity(2);
  Q(0, 0) = Q(0, 1) = 1;
  K(0, 1) = Scalar(-0.5);
  const Dense<double> weights = ungated_rows<SignedNormalized, 3>(Q, K, Dense<Scalar>::identity(2));
  ledger.control("D5", -smallest(weights.column(1)), 8 * unit_roundoff<Scalar>,
                 "odd p: the weights are a distribution; q·k = (1, -1/2) and p = 3 give 1.143 and -.143",
                 "premise of A §A.1.1, \"In practice …\"");
  K(0, 1) = -1;
  const bool cancels = denominators<3>(Q, K)(0, 1) == 0 && Q.column(1).dot(K.column(0)) != 0;
  ledger.control("D6", cancels ? 1 : 0, 0, "odd p: the denominator is not 0 where scores are not; q·k = (1, -1) cancel",
                 "premise of A §A.1.1, \"In practice …\"");
}

}  // namespace detail

/// Every statement that attention weights form a distribution.
///
/// D1 to D7. Source: Conformal Transformations, §3.1, A.1.1; Improving Symmetric Power Transformers, §1; Symmetric
/// Power Transformers, §1 and §2.
template <class Scalar>
void distribution_propositions(Ledger& ledger, std::uint64_t seed) {
  const detail::Sequence<Scalar> x(seed);
  Random random(seed + 1);
  detail::closed_gate(ledger, x);
  detail::even_powers(ledger, x);
  detail::vanishing_scores(ledger, x, random);
  detail::odd_powers<Scalar>(ledger);
}

}  // namespace SYMPOW_NAMESPACE::verify
