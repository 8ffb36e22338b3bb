// Attention is a recurrence: with any feature map, under rotary positions, and under gates (Propositions 1 and 3).
#pragma once

#include <sympow/transition/decay.hpp>
#include <sympow/transition/product.hpp>
#include <sympow/transition/rotary.hpp>
#include "propositions/sequence.hpp"

namespace SYMPOW_NAMESPACE::verify {
namespace detail {

/// elu(x) + 1, a φ that is no power.
[[nodiscard]] inline DenseVector<double> elu_plus_one(DenseVector<double> x) {
  for (double& entry : x) entry = entry > 0 ? entry + 1 : std::exp(entry);
  return x;
}

/// [v; 1] φ(k)ᵀ, what one token adds to a state.
template <int P>
[[nodiscard]] Dense<double> contribution(const DenseVector<double>& v, const DenseVector<double>& k) {
  const DenseVector<double> phi = symmetric_power<P>(k.plain());
  return extended(v) * phi.transpose();
}

/// R^{n+1} y, a query or a key of token n in the coordinates before the first.
template <class Scalar>
[[nodiscard]] DenseVector<double> turned(const Sequence<Scalar>& x, const DenseVector<double>& y, Index n) {
  return rotation_matrix(static_cast<double>(n + 1) * x.theta) * y;
}

template <class Scalar, int P>
void plain_recurrence(Ledger& ledger, const Sequence<Scalar>& x) {
  const auto s = forms(SymmetricPower<P>{}, stationary(), x.Q, x.K, x.V);
  const auto Y = attend([&](Index i, Index j) { return std::pow(x.q(i).dot(x.k(j)), P); }, x.V);
  ledger.holds("F1.p" + std::to_string(P), s.disagreement(Y), 1,
               "sympow attention = recurrence = chunked form, in units of the row rule",
               "A §2, eq. (sympow), \"Using the sympow embedding function …\"; A §A.1.1, eq. (sympow), \"Using this "
               "embedding function …\"; B §1, eq. (sympow), \"Using this embedding function …\"");
}

template <class Scalar, int P>
void rotary_recurrence(Ledger& ledger, const Sequence<Scalar>& x) {
  const auto s = forms(SymmetricPower<P>{}, rotary(x.theta, Pairing::interleaved), x.Q, x.K, x.V);
  const auto score = [&](Index i, Index j) { return std::pow(turned(x, x.q(i), i).dot(turned(x, x.k(j), j)), P); };
  ledger.holds(
      "P3.p" + std::to_string(P), s.disagreement(attend(score, x.V)), turning_bound<Scalar>(P, x.T),
      "Proposition 3: attention of Q' = R^i Q_i and K' = R^j K_j = recurrence under rotary, in units of the row rule",
      "A §A.1.2, eq. (sympow rotary), Proposition 3; A §A.3, Proposition 3; B §1.1, eq. (sympow rotary), \"The "
      "recurrent equations are given by …\"");
}

template <class Scalar, int P>
void gated_recurrence(Ledger& ledger, const Sequence<Scalar>& x) {
  const auto transition = decay(x.log_gamma) * rotary(x.theta, Pairing::interleaved);
  const auto s = forms(SymmetricPower<P>{}, transition, x.Q, x.K, x.V);
  const auto power = [&](Index i, Index j) { return std::pow(turned(x, x.q(i), i).dot(turned(x, x.k(j), j)), P); };
  const auto Y = attend([&](Index i, Index j) { return x.b(i, j) * power(i, j); }, x.V);
  const double agreement = s.disagreement(Y);
  const Bound bound = turning_bound<Scalar>(P, x.T);
  const std::string suffix = ".p" + std::to_string(P);
  ledger.holds("P1" + suffix, agreement, bound,
               "Proposition 1: gated attention of the rotated Q', K' = gated recurrence, in units of the row rule",
               "A §3.1, eq. (sympow+gating), Proposition 1; A §A.3, Proposition 1; B §2, eq. (sympow gated)");

  Dense<double> sum = Dense<double>::zero(x.e + 1, symmetric_dimension(x.d, P));
  for (Index j = 0; j < x.T; ++j) sum += x.b(x.T - 1, j) * contribution<P>(x.v(j), turned(x, x.k(j), j));
  const double error =
      distance(state_after(SymmetricPower<P>{}, transition, x.Q, x.K, x.V), sum) / state_size(x, P, true);
  // A token is rounded once a step, P + 1 times by φ and twice a turned coordinate; its angle is off as well.
  const double steps = static_cast<double>(x.T);
  ledger.holds("P1S" + suffix, error, (steps + 4 * P + 4) * unit_roundoff<Scalar> + P * angle_error(x.T),
               "S_T = Σ_j b_Tj V_j φ(K'_j)ᵀ and Z_T likewise (the induction of the proof)",
               "A §A.3, Proposition 1, \"We prove that …\"; B §2, \"We prove that …\"");

  if constexpr (P == 2) {
    const auto printed = [&](Index i, Index j) {
      return std::exp(static_cast<double>(i - j) * x.log_gamma[i]) * power(i, j);
    };
    ledger.erratum("G1", s.departure(attend(printed, x.V)), s.visible,
                   "b_ij = Π_{k=j+1..i} γ_m: the index m is bound nowhere; read as γ_i it is not the recurrence",
                   "B §2, \"To write the attention formulation we …\"", "b_ij = Π_{k=j+1..i} γ_k", agreement, bound);
  }
}

template <class Scalar>
void first_gate(Ledger& ledger, const Sequence<Scalar>& x) {
  const auto with_first_gate = [&](double gamma) {
    DenseVector<double> log_gamma = x.log_gamma;
    log_gamma[0] = std::log(gamma);
    return decay(log_gamma) * rotary(x.theta, Pairing::interleaved);
  };
  const auto s = forms(SymmetricPower<2>{}, with_first_gate(1), x.Q, x.K, x.V);
  double worst = 0;
  for (const double gamma : {0.123, 0.0}) {
    const auto other = forms(SymmetricPower<2>{}, with_first_gate(gamma), x.Q, x.K, x.V);
    for (std::size_t n = 0; n < s.outputs.size(); ++n)
      worst = worse(worst, other.disagreement(s.outputs[n].in_double()));
  }
  const DenseVector<double> gate = DenseVector<double>::constant(1, 1, std::log(0.123));
  const Dense<Scalar> q = x.Q.part(0, 0, x.d, 1), k = x.K.part(0, 0, x.d, 1), v = x.V.part(0, 0, x.e, 1);
  const double size = x.k(0).dot(x.k(0)) * std::max(1.0, x.v(0).largest());
  const double state =
      distance(state_after(SymmetricPower<2>{}, decay(gate), q, k, v), contribution<2>(x.v(0), x.k(0))) / size;
  // The state is rounded three times by φ and once by the product; a unit of the row rule is at least as much.
  ledger.holds(
      "P1g", worse(worst, state / (4 * unit_roundoff<Scalar>)),
      {2, "one unit for the forms, one for a state that is rounded four times", "row rule"},
      "γ_1 is irrelevant, S_1 = V_1 φ(K_1)ᵀ: three first gates and three forms apart, in units of the row rule",
      "A §A.3, Proposition 1, \"As the base case …\"; B §2, \"As the base case …\"");
}

template <class Scalar>
void gate_products(Ledger& ledger, const Sequence<Scalar>& x) {
  // Scores 1² b_ij and values e_j: row j of column i is b_ij.
  const Dense<Scalar> ones = Dense<Scalar>::constant(1, x.T, 1), identity = Dense<Scalar>::identity(x.T);
  const auto s = forms<Unnormalized>(SymmetricPower<2>{}, decay(x.log_gamma), ones, ones, identity);
  double error = 0;
  for (const Dense<Scalar>& b : s.outputs)
    for (Index i = 0; i < x.T; ++i)
      for (Index j = 0; j < x.T; ++j) {
        const double expected = j <= i ? x.b(i, j) : 0, found = static_cast<double>(b(j, i));
        if (found != expected) error = worse(error, expected > 0 ? std::abs(found / expected - 1) : 1);
      }
  ledger.holds("P1b", error, 4 * static_cast<double>(x.T) * unit_roundoff<Scalar>,
               "b_ij = Π_{k=j+1..i} γ_k and b_ii = 1, as the weights of all three forms; relative",
               "A §3.1, \"To write the attention formulation we …\"");
}

template <class Scalar>
void sizes(Ledger& ledger) {
  Index difference = 0;
  for (const Index d : {Index(1), Index(6), Index(16)}) {
    const State<Scalar, SymmetricPower<2>> two(d, d);
    const State<Scalar, SymmetricPower<4>> four(d, d);
    difference += std::abs(two.values().size() + two.normalizer().size() - symmetric_dimension(d, 2) * (d + 1));
    difference += std::abs(four.values().size() + four.normalizer().size() - symmetric_dimension(d, 4) * (d + 1));
  }
  ledger.holds("F4", static_cast<double>(difference), 0, "a state holds D (d + 1) numbers a head",
               "A §2, \"Using the sympow embedding function …\"; B §1, \"Since S_i ∈ R^{d×D} …\"; C §1, \"Note that "
               "D(d+1) gives the size …\"");

  double error = 0;
  for (const Index d : {Index(3), Index(6), Index(64)})
    for (const int p : {2, 3, 4}) {
      Scalar product = 1;
      for (int i = 0; i < p; ++i) product *= 1 + static_cast<Scalar>(i) / static_cast<Scalar>(d);
      const Scalar ratio = static_cast<Scalar>(symmetric_dimension(d, p)) / static_cast<Scalar>(tensor_dimension(d, p));
      const Scalar scaled = ratio * static_cast<Scalar>(factorial(p));
      error = worse(error, static_cast<double>(std::abs(scaled - product) / product));
    }
  ledger.holds("F5", error, 16 * unit_roundoff<Scalar>,
               "D / d^p = (1/p!) Π_{i<p} (1 + i/d): what 'D ≪ d^p' says is a factor of at most p!",
               "A §A.1.1, \"Thus D ≪ d^p\"; B §1, \"Thus D << d^p\"");
}

}  // namespace detail

/// Every statement that an attention equals a recurrence, and about the size and content of its state.
///
/// F1 to F5, P3, P1, P1S, P1g, P1b, G1. Inputs are drawn from the seed. Source: Conformal Transformations, §2, §3.1,
/// A.1, A.3; Improving Symmetric Power Transformers, §1 and §2; Symmetric Power Transformers, §1.
template <class Scalar>
void recurrence_propositions(Ledger& ledger, std::uint64_t seed) {
  const detail::Sequence<Scalar> x(seed);
  detail::plain_recurrence<Scalar, 2>(ledger, x);
  detail::plain_recurrence<Scalar, 4>(ledger, x);

  const detail::GivenFeatures elu{detail::elu_plus_one};
  const auto score = [&](Index i, Index j) { return elu.phi(x.q(i)).dot(elu.phi(x.k(j))); };
  ledger.holds("F2", detail::forms(elu, stationary(), x.Q, x.K, x.V).disagreement(detail::attend(score, x.V)), 1,
               "attention = recurrence for any φ, here elu + 1, in units of the row rule",
               "C §1, \"The exact same outputs can be …\"");

  Dense<double> sum = Dense<double>::zero(x.e + 1, symmetric_dimension(x.d, 2));
  for (Index j = 0; j < x.T; ++j) sum += detail::contribution<2>(x.v(j), x.k(j));
  const Dense<double> state = detail::state_after(SymmetricPower<2>{}, stationary(), x.Q, x.K, x.V);
  ledger.holds("F3", detail::distance(state, sum) / detail::state_size(x, 2, false),
               static_cast<double>(x.T + 4) * unit_roundoff<Scalar>, "S_T = Σ_j V_j φ(K_j)ᵀ and Z_T = Σ_j φ(K_j)ᵀ",
               "C §1, \"If we expand the recurrent the …\"");

  detail::sizes<Scalar>(ledger);
  detail::rotary_recurrence<Scalar, 2>(ledger, x);
  detail::rotary_recurrence<Scalar, 4>(ledger, x);
  detail::gated_recurrence<Scalar, 2>(ledger, x);
  detail::gated_recurrence<Scalar, 4>(ledger, x);
  detail::first_gate(ledger, x);
  detail::gate_products(ledger, x);
}

}  // namespace SYMPOW_NAMESPACE::verify
