// Rotations, their rates, and rotary positions at fixed and at learned rates.
#pragma once

#include <limits>
#include <numbers>

#include <sympow/feature/linear.hpp>
#include <sympow/rotation/block_rotation.hpp>
#include <sympow/transition/rotary.hpp>
#include "propositions/sequence.hpp"

namespace SYMPOW_NAMESPACE::verify {
namespace detail {

/// The library's own logits q_iᵀ M_ij k_j under a transition, row j of column i, from linear attention with values e_j.
template <class Scalar, Transition A>
[[nodiscard]] Dense<double> logits(const A& transition, const Dense<Scalar>& Q, const Dense<Scalar>& K) {
  return Dense<Scalar>(attention(Linear{}, transition, Q, K, Dense<Scalar>::identity(Q.cols()))).in_double();
}

/// The largest |x_ij - expected(i, j)| / (‖q_i‖ ‖k_j‖) over j ≤ i.
template <class Scalar, class Expected>
[[nodiscard]] double logit_error(const Sequence<Scalar>& x, const Dense<double>& found, const Expected& expected) {
  Dense<double> error = Dense<double>::zero(x.T, x.T);
  for (Index i = 0; i < x.T; ++i)
    for (Index j = 0; j <= i; ++j) error(j, i) = (found(j, i) - expected(i, j)) / (x.q(i).norm() * x.k(j).norm());
  return error.largest();
}

/// What rounding makes of logits: two turned vectors and an inner product, and an angle.
template <class Scalar>
[[nodiscard]] double logit_bound(const Sequence<Scalar>& x) {
  return 4 * static_cast<double>(x.d) * unit_roundoff<Scalar> + angle_error(2 * x.T);
}

template <class Scalar>
void rotation_algebra(Ledger& ledger, const Sequence<Scalar>& x, Random& random) {
  const double u = unit_roundoff<Scalar>;
  const BlockRotation<Scalar> R(x.theta.plain());
  const Dense<Scalar> dense = rotation_matrix(x.theta).template to<Scalar>();
  const auto matrix = [](const BlockRotation<Scalar>& of) { return Dense<Scalar>(of.toDenseMatrix()).in_double(); };
  double power = 0;
  for (const int k : {1, 2, 3, 7, 50, 1000}) {
    Dense<Scalar> product = Dense<Scalar>::identity(x.d);
    for (int n = 0; n < k; ++n) product = product * dense;
    const Dense<double> found = matrix(R.pow(k));
    power =
        worse(power, worse(distance(product.in_double(), found), distance(rotation_matrix(k * x.theta), found)) / k);
  }
  ledger.holds("T1", power, 8 * u, "R(θ)^k = R(kθ) for k = 1 … 1000; the difference a factor",
               "A §A.1.2, \"A computational advantage of using rotation …\"; A §A.3, \"Given a vector of angles …\"; B "
               "§1.1, \"A computational advantage of using rotation …\"");

  const double zero = distance(matrix(R.pow(0)), Dense<double>::identity(x.d));
  const double minus_one = distance(matrix(R.pow(-1)), rotation_matrix(x.theta).inverse());
  const double inverse = distance(matrix(R.inverse()), rotation_matrix(x.theta).transpose());
  ledger.holds("T1n", worse(zero, worse(minus_one, inverse)), 8 * u, "the same for k = 0 and k = -1",
               "extension of A §A.3, \"Given a vector of angles …\"");

  const auto image = [](const BlockRotation<Scalar>& of, const Vector<Scalar>& y) {
    return DenseVector<Scalar>(of * y);
  };
  const auto turned = [&](const Dense<Scalar>& batch, Index n) {
    return image(R.pow(static_cast<double>(n + 1)), batch.column(n)).in_double();
  };
  Dense<double> scores = Dense<double>::zero(x.T, x.T);
  for (Index i = 0; i < x.T; ++i)
    for (Index j = 0; j <= i; ++j) scores(j, i) = turned(x.Q, i).dot(turned(x.K, j));
  const auto relative = [&](Index i, Index j) {
    return x.q(i).dot(rotation_matrix(static_cast<double>(i - j) * x.theta).transpose() * x.k(j));
  };
  ledger.holds("T2",
               worse(logit_error(x, scores, relative),
                     logit_error(x, logits(rotary(x.theta, Pairing::interleaved), x.Q, x.K), relative)),
               logit_bound(x), "Q'_i·K'_j = Q_iᵀ (R^{i-j})ᵀ K_j, as operators and as the transition's logits",
               "A §A.1.2, eq. (sympow rotary); B §1.1, eq. (sympow rotary)");

  const Dense<Scalar> P = random.rotation<Scalar>(x.d);
  const DenseVector<Scalar> q = x.Q.column(0), k = x.K.column(0);
  const auto kernel = [](const Vector<Scalar>& y, const Vector<Scalar>& z, int p) {
    return static_cast<double>(symmetric_power(y, p).dot(symmetric_power(z, p)));
  };
  double invariance = 0;
  for (const int p : {1, 2, 3, 4, 8}) {
    const double size = p * std::pow(q.norm() * k.norm(), p), score = kernel(q, k, p);
    const double dense_turned = kernel(P * q, P * k, p), turned_by_pairs = kernel(image(R, q), image(R, k), p);
    invariance = worse(invariance, worse(std::abs(dense_turned - score), std::abs(turned_by_pairs - score)) / size);
  }
  ledger.holds("T3", invariance, 8 * static_cast<double>(x.d) * u,
               "((RQ)·(RK))^p = (Q·K)^p for p = 1 … 8; relative to p (‖Q‖ ‖K‖)^p",
               "C §1, \"To preserve their translational symmetry …\"; C §2, \"This holds for even-power attention …\"");

  const DenseVector<double> angles = random.vector<double>(x.d / 2);
  const Dense<double> found = matrix(BlockRotation<Scalar>(angles.plain())), expected = rotation_matrix(angles);
  bool elsewhere = false;
  for (Index n = 0; n < found.size(); ++n) elsewhere = elsewhere || (expected.data()[n] == 0 && found.data()[n] != 0);
  ledger.holds("T4", elsewhere ? 1 : distance(found, expected), 4 * u,
               "coordinates 2j - 1 and 2j turn by θ_j and by nothing else",
               "A §A.1.2, \"When multiplying a query or key …\"; B §1.1, \"When multiplying a query or key …\"");
}

template <class Scalar>
void rates(Ledger& ledger, const Sequence<Scalar>& x) {
  const double u = unit_roundoff<Scalar>, N = x.largest_document;
  constexpr auto full_turn = static_cast<Scalar>(2 * std::numbers::pi);
  double formula = 0;
  Index outside = 0, infinite = 0;
  for (const Index d : {Index(2), Index(6), Index(64)}) {
    const auto theta = rotary_frequencies<Scalar>(d, N);
    for (Index i = 0; i < d / 2; ++i) {
      const double exponent = 2 * static_cast<double>(i) / static_cast<double>(d),
                   expected = 2 * std::numbers::pi * std::pow(N, -exponent);
      formula = worse(formula, std::abs(static_cast<double>(theta[i]) / expected - 1));
      if (!(theta[i] > static_cast<Scalar>(2 * std::numbers::pi / N) && theta[i] <= full_turn)) ++outside;
      if (!std::isfinite(2 * std::numbers::pi / (N * exponent))) ++infinite;
    }
  }
  const auto largest = rotary_frequencies<Scalar>(x.d, N)[0];
  ledger.erratum("T5", static_cast<double>(infinite), 0,
                 "θ_i = 2π / (N·2(i-1)/d), as set without the exponent: rates that are not finite",
                 "A §3.2, \"In this paper …\"; A §A.1.2, \"We start with rotation rates …\"", "θ_i = 2π / N^{2(i-1)/d}",
                 formula, 8 * u);
  ledger.holds("T5.fix", formula, 8 * u, "θ_i = 2π / N^{2(i-1)/d}, relative",
               "B §1.1, \"We start with some range of …\"");
  ledger.erratum("T6", static_cast<double>(largest - std::nextafter(full_turn, Scalar(0))), 0,
                 "θ_i lies in the open interval (0, 2π): how far θ_1 is above the last number below 2π",
                 "A §A.1.2, \"We start with rotation rates …\"", "2π/N < θ_i ≤ 2π, and θ_1 = 2π",
                 static_cast<double>(outside), 0);
  ledger.holds("T6.fix", static_cast<double>(outside), 0, "2π/N < θ_i ≤ 2π: rates outside",
               "correction of A §A.1.2, \"We start with rotation rates …\"");

  const BlockRotation<Scalar> R(x.theta.plain());
  double first_pair = 0;
  for (Index i = 1; i <= x.T; ++i) {
    const Dense<Scalar> turned = R.pow(static_cast<double>(i)) * x.Q;
    first_pair = worse(first_pair, (turned.part(0, 0, 2, x.T) - x.Q.part(0, 0, 2, x.T)).largest());
  }
  double longest = 0;
  for (Index i = 0; i < x.T; ++i) longest = std::max(longest, x.q(i).norm());
  ledger.holds("T7", first_pair / longest, 4 * u + angle_error(x.T),
               "consequence of θ_1 = 2π: at fixed rates the first pair is never turned",
               "corollary of A §A.1.2, \"We start with rotation rates …\"; corollary of B §1.1, \"We start with some "
               "range of …\"");
}

/// Every angle in [-π, π].
[[nodiscard]] inline DenseVector<double> reduced_angles(DenseVector<double> angles) {
  for (double& angle : angles) angle = reduced_angle(angle);
  return angles;
}

template <class Scalar>
void absolute_angles(Ledger& ledger, const Sequence<Scalar>& x, Random& random) {
  const DenseVector<double> start = random.vector<double>(x.d / 2);
  const Dense<double> turn = rotation_matrix(3 * start);
  const Dense<Scalar> Q = (turn * x.Q.in_double()).template to<Scalar>(),
                      K = (turn * x.K.in_double()).template to<Scalar>();
  const auto from_zero = forms(SymmetricPower<2>{}, rotary(x.theta, Pairing::interleaved), x.Q, x.K, x.V);
  const auto from_start = forms(SymmetricPower<2>{}, rotary(x.theta, Pairing::interleaved), Q, K, x.V);
  // Two results and two roundings of turned inputs, a unit each.
  ledger.holds(
      "T8", from_start.disagreement(from_zero.outputs[1].in_double()), 2 + turning_bound<Scalar>(2, x.T),
      "μ_0, which no page states, is irrelevant: any start gives the outputs of start 0, in units of the row rule",
      "A §A.1.2, \"The recurrent equations are given by …\"; B §1.1, \"The recurrent equations are given by …\"");

  double reduced = 0;
  DenseVector<double> modulo = DenseVector<double>::zero(x.d / 2);
  for (Index i = 0; i < x.T; ++i) {
    modulo = reduced_angles(modulo + x.beta[i] * x.theta);
    const DenseVector<Scalar> q = BlockRotation<Scalar>(modulo.plain()) * x.Q.column(i);
    const DenseVector<double> expected = rotation_matrix(x.c(i, -1) * x.theta) * x.q(i);
    reduced = worse(reduced, (q.in_double() - expected).largest() / x.q(i).norm());
  }
  ledger.holds("T9", reduced, 4 * unit_roundoff<Scalar> + angle_error(2 * x.T),
               "R(μ) = R(μ mod 2π): μ may be kept reduced at every step; relative to ‖Q_i‖",
               "extension of A §A.1.2, \"The recurrent equations are given by …\"");
}

inline void ends_of_gates(Ledger& ledger) {
  Index outside = 0, attained = 0;
  for (int n = -180; n <= 180; ++n)
    if (const double beta = 1 + std::tanh(n / 10.0); !(beta > 0 && beta < 2)) ++outside;
  for (const float x : {-20.0F, 20.0F})
    if (const float beta = 1 + std::tanh(x); !(beta > 0 && beta < 2)) ++attained;
  const float gate = 1 / (1 + std::exp(-20.0F));
  ledger.holds("L1", static_cast<double>(outside), 0,
               "β = 1 + tanh(x) lies in (0, 2): exceptions for |x| ≤ 18, in double", "A §3.2, \"Intuitively …\"");
  ledger.control("L1f", static_cast<double>(attained), 0, "… and in float: x = ±20 attain 0 and 2 (from |x| ≈ 9 on)",
                 "A §3.2, \"Intuitively …\"");
  ledger.control("L1g", gate < 1 ? 0 : 1, -systems::softplus(-20) < 0 ? 0 : 1,
                 "a gate σ(x) is below 1: in float σ(20) is 1; its logarithm, as -softplus(-x), is still below 0",
                 "A §3, \"In this paper …\"; A §3.1, \"The discount value at timestep i …\"");
}

template <class Scalar>
void learned_rates(Ledger& ledger, const Sequence<Scalar>& x) {
  // μ_i as a state carries it, token by token.
  State<Scalar, SymmetricPower<2>> state(x.d, x.e);
  std::vector<DenseVector<double>> mu;
  for (Index i = 0; i < x.T; ++i) {
    const DenseVector<double> rate = DenseVector<double>::constant(1, 1, x.beta[i]);
    const Dense<Scalar> q = x.Q.part(0, i, x.d, 1), k = x.K.part(0, i, x.d, 1), v = x.V.part(0, i, x.e, 1);
    static_cast<void>(recurrent(SymmetricPower<2>{}, rotary(x.theta, rate, Pairing::interleaved), q, k, v, state));
    mu.emplace_back(state.frame().numbers());
  }
  double printed = 0, corrected = 0;
  for (Index i = 0; i < x.T; ++i)
    for (Index j = 0; j <= i; ++j) {
      const auto apart = [&](double c) {
        const auto mu_i = mu[static_cast<std::size_t>(i)], mu_j = mu[static_cast<std::size_t>(j)];
        return reduced_angles(mu_i - mu_j - c * x.theta).largest();
      };
      printed = worse(printed, apart(static_cast<double>(i - j) * x.beta[i]));
      corrected = worse(corrected, apart(x.c(i, j)));
    }
  const double bound = angle_error(2 * x.T);
  ledger.holds(
      "L2.fix", corrected, bound, "c_ij = Σ_{k=j+1..i} β_k and c_ij θ = μ_i - μ_j mod 2π, in radians",
      "correction of A §3.2, \"To write the attention formulation we …\"; correction of B §3, eq. (conformal-sympow)");
  ledger.erratum("L2", printed, bound,
                 "c_ij = Σ_{k=j+1..i} β_i, with the index i: c_ij θ = μ_i - μ_j mod 2π, in radians",
                 "A §3.2, \"To write the attention formulation we …\"; B §3, eq. (conformal-sympow)",
                 "c_ij = Σ_{k=j+1..i} β_k", corrected, bound);
}

template <class Scalar, int P>
void learned_rotary(Ledger& ledger, const Sequence<Scalar>& x) {
  const auto s = forms(SymmetricPower<P>{}, rotary(x.theta, x.beta, Pairing::interleaved), x.Q, x.K, x.V);
  const auto turned_by = [&](double sign) {
    return attend(
        [&](Index i, Index j) { return std::pow(x.q(i).dot(rotation_matrix(sign * x.c(i, j) * x.theta) * x.k(j)), P); },
        x.V);
  };
  const double corrected = s.disagreement(turned_by(-1));
  const Bound bound = turning_bound<Scalar>(P, 2 * x.T);
  const std::string suffix = ".p" + std::to_string(P);
  ledger.erratum("L3" + suffix, s.departure(turned_by(1)), s.visible,
                 "B_ij = (Q_iᵀ R(+c_ij θ) K_j)^p is the recurrence in μ",
                 "A §3.2, eq. (sympow learned rotary); B §3, eq. (conformal-sympow)",
                 "B_ij = (Q_iᵀ R(c_ij θ)ᵀ K_j)^p, the other direction", corrected, bound);
  ledger.holds("L3.fix" + suffix, corrected, bound,
               "B_ij = (Q_iᵀ R(c_ij θ)ᵀ K_j)^p is the recurrence in μ, in units of the row rule",
               "correction of A §3.2, eq. (sympow learned rotary); correction of B §3, eq. (conformal-sympow)");
}

template <class Scalar>
void exchanged_roles(Ledger& ledger, const Sequence<Scalar>& x) {
  const auto exchanged = [&](Index i, Index j) { return x.k(j).dot(rotation_matrix(x.c(i, j) * x.theta) * x.q(i)); };
  ledger.holds("L3s", logit_error(x, logits(rotary(x.theta, x.beta, Pairing::interleaved), x.Q, x.K), exchanged),
               logit_bound(x), "Q_iᵀ R(-c) K_j = K_jᵀ R(c) Q_i: the printed sign is right if Q and K change places",
               "extension of A §3.2, eq. (sympow learned rotary); extension of B §3, eq. (conformal-sympow)");
}

}  // namespace detail

/// Every statement about R(θ), the rates θ, rotary positions at fixed rates, and learned rotary.
///
/// T1 to T9, L1, L1f, L1g, L2, L3, L3s. L1f and L1g are about float and are computed in float, L1 in double, whatever
/// the scalar. Source: Conformal Transformations, §3.2, A.1.2, A.3; Improving Symmetric Power Transformers, §1.1 and
/// §3.
template <class Scalar>
void rotation_propositions(Ledger& ledger, std::uint64_t seed) {
  const detail::Sequence<Scalar> x(seed);
  Random random(seed + 1);
  detail::rotation_algebra(ledger, x, random);
  detail::rates(ledger, x);
  detail::absolute_angles(ledger, x, random);
  detail::ends_of_gates(ledger);
  detail::learned_rates(ledger, x);
  detail::learned_rotary<Scalar, 2>(ledger, x);
  detail::learned_rotary<Scalar, 4>(ledger, x);
  detail::exchanged_roles(ledger, x);
}

}  // namespace SYMPOW_NAMESPACE::verify
