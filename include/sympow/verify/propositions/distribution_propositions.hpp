// When the rows of attention are distributions: even powers, odd powers, and a gate that is 0.
#pragma once

#include <sympow/transition/decay.hpp>
#include <sympow/transition/product.hpp>
#include <sympow/transition/rotary.hpp>
#include <sympow/verify/propositions/sequence.hpp>

namespace sympow::verify {
namespace detail {

template <class Scalar>
void closed_gate(Ledger& ledger, const Sequence<Scalar>& x) {
  constexpr Index closed = 7;
  Eigen::VectorXd log_gamma = x.log_gamma;
  log_gamma[closed] = -std::numeric_limits<double>::infinity();
  const auto s = forms(SymmetricPower<4>{}, decay(log_gamma) * rotary(x.theta), x.Q, x.K, x.V);
  Matrix<double> expected = s.rows.Y;  // an independent value for the row in question only
  expected.col(closed) = x.v(closed);
  ledger.holds("D7", s.disagreement(expected), 1,
               "γ_i = 0, which γ in [0, 1] allows, gives Y_i = V_i; in units of the row rule", "A §3.1");
}

template <class Scalar>
void even_powers(Ledger& ledger, const Sequence<Scalar>& x) {
  // Values e_j: row j of column i is the weight of token j.
  const Matrix<Scalar> identity = Matrix<Scalar>::Identity(x.T, x.T);
  const SymmetricPower<4> fourth;
  const Matrix<double> A = in_double(attention(fourth, stationary(), x.Q, x.K, identity));
  const Matrix<double> future = A.template triangularView<Eigen::StrictlyLower>();
  const double sums = distance(A.colwise().sum(), Matrix<double>::Ones(1, x.T)),
               rounding = static_cast<double>(x.T + 8) * unit_roundoff<Scalar>;
  ledger.holds("D1", worse(worse(sums, -A.minCoeff()), distance(future, Matrix<double>::Zero(x.T, x.T))), rounding,
               "even p: the weights A_i. are not negative, sum to 1, and are 0 on the future", "A A.1.1; B §1; C §2");

  const Matrix<double> Y = in_double(attention(fourth, stationary(), x.Q, x.K, x.V)), V = in_double(x.V);
  double outside = 0;
  for (Index i = 0; i < x.T; ++i) {
    const auto seen = V.leftCols(i + 1);
    outside = worse(outside, (seen.rowwise().minCoeff() - Y.col(i)).maxCoeff());
    outside = worse(outside, (Y.col(i) - seen.rowwise().maxCoeff()).maxCoeff());
  }
  ledger.holds("D2", outside / V.cwiseAbs().maxCoeff(), rounding,
               "even p: Y_i is a convex combination of V_1 … V_i; how far it is outside, in units of max |V|",
               "A A.1.1; B §1; C §1");
}

/// Σ_j s_ij of every row, with the scores of a power alone.
template <int P, class Scalar>
[[nodiscard]] Matrix<double> denominators(const Matrix<Scalar>& Q, const Matrix<Scalar>& K) {
  const Matrix<Scalar> ones = Matrix<Scalar>::Ones(1, Q.cols());
  return in_double(attention<Unnormalized>(SymmetricPower<P>{}, stationary(), Q, K, ones));
}

template <class Scalar>
void vanishing_scores(Ledger& ledger, const Sequence<Scalar>& x, Random& random) {
  constexpr Index T = 5;
  Matrix<Scalar> Q = Matrix<Scalar>::Zero(2, T), K = Q;
  Q.row(0) = random.matrix<Scalar>(1, T);
  K.row(1) = random.matrix<Scalar>(1, T);
  const Matrix<double> zero = denominators<4>(Q, K), generic = denominators<4>(x.Q, x.K);
  const Matrix<Scalar> V = random.matrix<Scalar>(2, T);
  double rows = 0;  // the library's answer where there is no distribution is 0
  for (const Matrix<Scalar>& Y : forms(SymmetricPower<4>{}, stationary(), Q, K, V).outputs)
    rows = worse(rows, distance(in_double(Y), Matrix<double>::Zero(2, T)));
  ledger.erratum("D3", static_cast<double>((zero.array() <= 0).count()), 0,
                 "an even p 'guarantees that the denominator is positive': rows where it is not, for q along e_1 and "
                 "keys along e_2",
                 "B §1", "the denominator is ≥ 0, and where it is 0 the row has no distribution (the library's is 0)",
                 worse(worse(-zero.minCoeff(), -generic.minCoeff()), rows), 0);

  const Matrix<double> terms = in_double((symmetric_power<2>(Q).transpose() * symmetric_power<2>(K)).eval());
  const Matrix<double> squares = in_double((symmetric_power<2>(x.Q).transpose() * symmetric_power<2>(x.K)).eval());
  ledger.erratum("D4", static_cast<double>((terms.array() <= 0).count()), 0,
                 "'an even power makes the term positive': terms that are not", "C §2", "an even power makes it ≥ 0",
                 worse(-terms.minCoeff(), -squares.minCoeff()), 0);
}

template <class Scalar>
void odd_powers(Ledger& ledger) {
  Matrix<Scalar> Q = Matrix<Scalar>::Zero(2, 2), K(2, 2);
  Q.row(0).setOnes();
  K << 1, Scalar(-0.5), 0, 1;
  const Matrix<Scalar> identity = Matrix<Scalar>::Identity(2, 2);
  const Matrix<double> weights =
      in_double(attention<SignedNormalized>(SymmetricPower<3>{}, stationary(), Q, K, identity));
  ledger.control("D5", -weights.col(1).minCoeff(), 8 * unit_roundoff<Scalar>,
                 "odd p: the weights are a distribution; q·k = (1, -1/2) and p = 3 give 1.143 and -.143",
                 "A A.1.1 (scope)");
  K(0, 1) = -1;
  const bool cancels = denominators<3>(Q, K)(0, 1) == 0 && Q.col(1).dot(K.col(0)) != 0;
  ledger.control("D6", cancels ? 1 : 0, 0, "odd p: the denominator is not 0 where scores are not; q·k = (1, -1) cancel",
                 "A A.1.1 (scope)");
}

}  // namespace detail

/// Every statement that attention weights form a distribution.
///
/// D1 to D7. Source: Conformal Transformations, §3.1, A.1.1; Improving Symmetric Power Transformers, §1; Symmetric Power
/// Transformers, §1 and §2.
template <class Scalar>
void distribution_propositions(Ledger& ledger, std::uint64_t seed) {
  const detail::Sequence<Scalar> x(seed);
  Random random(seed + 1);
  detail::closed_gate(ledger, x);
  detail::even_powers(ledger, x);
  detail::vanishing_scores(ledger, x, random);
  detail::odd_powers<Scalar>(ledger);
}

}  // namespace sympow::verify
