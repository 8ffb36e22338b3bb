// Conformal-sympow: gates and learned rotary at once, and its two recurrences, in key space and in the space of φ.
#pragma once

#include <algorithm>
#include <vector>

#include <sympow/rotation/block_rotation.hpp>
#include <sympow/rotation/conformal.hpp>
#include <sympow/tensor/induced.hpp>
#include <sympow/transition/decay.hpp>
#include <sympow/transition/product.hpp>
#include <sympow/transition/rotary.hpp>
#include "propositions/sequence.hpp"

namespace SYMPOW_NAMESPACE::verify {
namespace detail {

template <class Scalar, int P>
void conformal_scores(Ledger& ledger, const Sequence<Scalar>& x) {
  const auto s =
      forms(SymmetricPower<P>{}, decay(x.log_gamma) * rotary(x.theta, x.beta, Pairing::interleaved), x.Q, x.K, x.V);
  const auto power = [&](Index i, Index j, double sign) {
    return std::pow(x.q(i).dot(rotation_matrix(sign * x.c(i, j) * x.theta) * x.k(j)), P);
  };
  const Dense<double> corrected = attend([&](Index i, Index j) { return x.b(i, j) * power(i, j, -1); }, x.V);
  const double agreement = s.disagreement(corrected);
  const Bound bound = turning_bound<Scalar>(P, 2 * x.T);
  const std::string suffix = ".p" + std::to_string(P), truth = "B_ij = b_ij (Q_iᵀ R(c_ij θ)ᵀ K_j)^p";
  ledger.erratum("C1" + suffix, s.departure(attend([&](Index i, Index j) { return x.b(i, j) * power(i, j, 1); }, x.V)),
                 s.visible, "conformal-sympow has B_ij = b_ij (Q_i R(+c_ij θ) K_j)^p", "A §3.3, eq. (conformal-sympow)",
                 truth, agreement, bound);
  ledger.holds("C1.fix" + suffix, agreement, bound, truth + " is the recurrence of eq. (2), in units of the row rule",
               "correction of A §3.3, eq. (conformal-sympow); A §3.3, eq. (2)");
  ledger.erratum("C2" + suffix, s.departure(attend([&](Index i, Index j) { return power(i, j, -1); }, x.V)), s.visible,
                 "the equation named conformal-sympow has no b_ij", "B §3, eq. (conformal-sympow)", truth, agreement,
                 bound);
}

/// Sym^P(R(angles)), dense.
template <int P>
[[nodiscard]] Dense<double> lifted_rotation(const DenseVector<double>& angles) {
  return induced<P>(BlockRotation<double>(angles.plain())).toDenseMatrix();
}

/// Eq. (3): the state itself turns, S_i = γ_i S_{i-1} R̄_i + [V_i; 1] φ(K_i)ᵀ with R̄_i dense, in double.
struct TurningState {
  Dense<double> Y, S;
};

/// `turns` are the R̄_i, and the state is read by φ of the columns of Q.
template <int P, class Scalar>
[[nodiscard]] TurningState turning_state(const Sequence<Scalar>& x, const std::vector<Dense<double>>& turns,
                                         const Dense<double>& Q) {
  TurningState result{Dense<double>(x.e, x.T), Dense<double>::zero(x.e + 1, symmetric_dimension(x.d, P))};
  const Dense<double> K = x.K.in_double(), phi_q = symmetric_power<P>(Q.plain()), phi_k = symmetric_power<P>(K.plain());
  for (Index i = 0; i < x.T; ++i) {
    result.S = std::exp(x.log_gamma[i]) * result.S * turns[static_cast<std::size_t>(i)] +
               extended(x.v(i)) * phi_k.column(i).transpose();
    const DenseVector<double> sums = result.S * phi_q.column(i);
    for (Index r = 0; r < x.e; ++r) result.Y(r, i) = sums[r] / sums[x.e];
  }
  return result;
}

template <class Scalar, int P>
void turning_states(Ledger& ledger, const Sequence<Scalar>& x) {
  const SymmetricPower<P> power;
  const auto transition = decay(x.log_gamma) * rotary(x.theta, x.beta, Pairing::interleaved);
  const auto s = forms<SignedNormalized>(power, transition, x.Q, x.K, x.V);
  std::vector<Dense<double>> forward, backward;
  Dense<double> turned(x.d, x.T);
  for (Index i = 0; i < x.T; ++i) {
    forward.push_back(lifted_rotation<P>(x.beta[i] * x.theta));
    backward.push_back(forward.back().transpose());
    const DenseVector<double> q = rotation_matrix(x.c(i, -1) * x.theta) * x.q(i);
    std::copy(q.begin(), q.end(), &turned(0, i));
  }

  const TurningState third = turning_state<P>(x, forward, x.Q.in_double());
  const double root_of_dimension = std::sqrt(static_cast<double>(forward[0].rows()));
  const std::string suffix = ".p" + std::to_string(P);
  // Eq. (3) in double rounds sums of D terms, √D of them at random, at every step.
  ledger.holds(
      "C3" + suffix, s.disagreement(third.Y),
      turning_bound<Scalar>(P, 2 * x.T) + root_of_dimension * unit_roundoff<double> / unit_roundoff<Scalar>,
      "eq. (3), where the state turns by R̄_i = Sym^p(R(+β_i θ)) and is read by the unturned φ(Q_i), equals eq. (2)",
      "A §3.3, eq. (2), eq. (3); B §4, \"Using the above result …\"");

  const Dense<double> second = state_after(power, transition, x.Q, x.K, x.V);
  const double size = state_size(x, P, true), steps = static_cast<double>(x.T);
  // As for P1S; a product with Sym^p adds up √D errors.
  const double bound = (steps + 4 * P + 4) * unit_roundoff<Scalar> + P * angle_error(2 * x.T);
  const Dense<double> lifted = lifted_rotation<P>(x.c(x.T - 1, -1) * x.theta);
  ledger.control("C3s" + suffix, distance(third.S, second) / size, bound, "the states of eq. (2) and (3) are equal",
                 "A §3.3, eq. (2), eq. (3), \"In practice …\"; B §4, \"We will show that the update …\"");
  ledger.holds("C3s.fix" + suffix, distance(third.S, second * lifted) / size, root_of_dimension * bound,
               "S⁽³⁾_i = S⁽²⁾_i Sym^p(R(μ_i)), and Z likewise",
               "correction of A §3.3, eq. (2), eq. (3), \"In practice …\"");
  ledger.control("C3r" + suffix, s.departure(turning_state<P>(x, forward, turned).Y), s.visible,
                 "eq. (3) read by φ(R(μ_i) Q_i), as A.1.2 reads its state",
                 "A §3.3, eq. (3); A §A.1.2, \"Given S_i and Z_i …\"");
  ledger.control("C3t" + suffix, s.departure(turning_state<P>(x, backward, x.Q.in_double()).Y), s.visible,
                 "eq. (3) with R̄_i from R(-β_i θ)", "A §3.3, eq. (3)");
}

template <class Scalar>
void conformal_maps(Ledger& ledger, const Sequence<Scalar>& x, Random& random) {
  const auto s = static_cast<Scalar>(random.uniform(0.1, 1));
  const DenseVector<double> angles = x.theta.part(1, 0, x.d / 2 - 1, 1).column(0);  // the first pair would not turn
  const BlockRotation<Scalar> R(angles.plain());
  const DenseVector<double> many = 3 * DenseVector<double>(random.vector<double>(10));
  const auto map = conformal(s, BlockRotation<Scalar>(many.plain()));
  const Dense<Scalar> points = random.matrix<Scalar>(20, 5), images = map * points;
  const Dense<Scalar> lift = s * Dense<Scalar>(induced<2>(R).toDenseMatrix()),
                      states = random.matrix<Scalar>(lift.rows(), 5), turned = lift * states;
  double error = 0;
  const auto compare = [&](const Dense<double>& before, const Dense<double>& after) {
    for (Index i = 0; i < before.cols(); ++i) {
      const DenseVector<double> x_i = before.column(i), y_i = after.column(i);
      error = worse(error, std::abs(y_i.norm() / x_i.norm() / static_cast<double>(s) - 1));
      for (Index j = 0; j < before.cols(); ++j) {
        const double cosine = x_i.normalized().dot(before.column(j).normalized()),
                     kept = y_i.normalized().dot(after.column(j).normalized());
        error = worse(error, std::abs(cosine - kept));
      }
    }
  };
  compare(points.in_double(), images.in_double());
  compare(states.in_double(), turned.in_double());
  const double rank = static_cast<double>(points.rows());
  ledger.holds(
      "C4", error, 4 * rank * unit_roundoff<Scalar>,
      "T(x) = s R x keeps cosines and scales lengths by s, for R in key space and for its lift Sym²(R)",
      "A §3, \"A conformal linear transformation is a …\"; B §4, \"A conformal linear transformation is a …\"");
}

}  // namespace detail

/// Every statement about conformal-sympow, its equations (1) to (3) and their states.
///
/// C1 to C4 with C3s, C3r, C3t. For p = 3 the rows are divided by their signed sums, as the equations are written.
/// Source: Conformal Transformations, §3 and §3.3; Improving Symmetric Power Transformers, §3 and §4.
template <class Scalar>
void conformal_propositions(Ledger& ledger, std::uint64_t seed) {
  const detail::Sequence<Scalar> x(seed);
  Random random(seed + 1);
  detail::conformal_scores<Scalar, 2>(ledger, x);
  detail::conformal_scores<Scalar, 4>(ledger, x);
  detail::turning_states<Scalar, 2>(ledger, x);
  detail::turning_states<Scalar, 3>(ledger, x);
  detail::conformal_maps(ledger, x, random);
}

}  // namespace SYMPOW_NAMESPACE::verify
