// The bounds on the way to Theorem 2 on structured rotations, of commutators and of perturbed Cayley transforms: 4.29
// to 4.33.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include <sympow/verify/proposition.hpp>
#include "propositions/dense_rotations.hpp"
#include "propositions/largest.hpp"

namespace SYMPOW_NAMESPACE::verify {
namespace detail {

/// The skew logarithm of a turn of space by an angle below π.
template <class Scalar>
[[nodiscard]] Dense<Scalar> rotation_logarithm(const Dense<Scalar>& R) {
  const Dense<Scalar> sine = (R - R.transpose()) / 2;  // sin θ times the unit generator
  const double s = sine.norm() / std::sqrt(2.), trace = static_cast<double>(R(0, 0) + R(1, 1) + R(2, 2));
  return std::atan2(s, (trace - 1) / 2) / s * sine;
}

template <class Scalar>
void commutator_bounds(Ledger& ledger, Random& random) {
  using M = Dense<Scalar>;
  using V = DenseVector<Scalar>;
  const double u = unit_roundoff<Scalar>;
  const auto split = [](const M& A, const M& B) {  // ‖e^{-A} e^B - e^{B-A}‖
    return apart(exponential(-A) * exponential(B), exponential(B - A));
  };
  Largest half, sums, areas, absolute;
  for (int n = 0; n < 400; ++n) {
    const Index d = std::array<Index, 4>{3, 4, 6, 8}[static_cast<std::size_t>(n % 4)];
    const auto skew = [&] { return std::pow(10, random.uniform(-3, 1)) * M(random.skew<Scalar>(d)); };
    const M A = skew(), B = skew();
    const double rounding = 16 * static_cast<double>(d) * (1 + A.norm() + B.norm()) * u;
    half.add((split(A, B) - rounding) / commutator(A, B).spectral_norm());
  }
  ledger.holds(
      "4.29", half.value(), .5,
      "‖e^{-A} e^B - e^{B-A}‖ ≤ ½ ‖[A, B]‖ for all skew A and B: (28) and (29) with C₁ = 0; the worst ratio of 400",
      "E §F.5, eq. (28), eq. (29)");
  auto x = M::zero(3, 3), y = M::zero(3, 3);
  x(2, 1) = y(0, 2) = 1;
  x(1, 2) = y(2, 0) = -1;
  const double t = std::sqrt(std::sqrt(u));
  const M tx = t * x, ty = t * y;
  ledger.holds("4.29o", std::abs(split(tx, ty) / commutator(tx, ty).spectral_norm() - .5), 64 * std::sqrt(u),
               "the constant ½ is attained in the limit of small turns of space", "extension of E §F.5, eq. (29)");
  // log(e^X e^Y) = X + Y + ½ [X, Y] + … for small Y, of first order in Y and so in [X, Y], whose norm is ‖Y‖ here.
  const auto remainder = [&](double distance) {
    const M small = distance * y, bracket = commutator(x, small);
    const M z = rotation_logarithm(exponential(x) * exponential(small)) - x - small - bracket / 2;
    return z.spectral_norm() / bracket.spectral_norm();
  };
  const double length = std::sqrt(u), limit = 1 - .5 / std::tan(.5);
  ledger.erratum("4.29r", remainder(length) / length, 100,
                 "what the series of log(e^X e^Y) has beyond X + Y + ½ [X, Y] is at most C ‖[X, Y]‖²; that ratio for "
                 "‖X‖ = 1, ‖[X, Y]‖ = √u",
                 "E §F.5, eq. (29)", "it is of first order: its norm over ‖[X, Y]‖ goes to 1 - ½ cot ½",
                 std::abs(remainder(length) - limit), length);
  for (int n = 0; n < 100; ++n) {
    std::vector<M> L;
    for (int k = 0; k < 3; ++k) L.emplace_back(random.skew<Scalar>(5));
    const V r = random.vector<Scalar>(3), s = random.vector<Scalar>(3);
    double sum = 0, area = 0, epsilon = 0;
    for (Index a = 0; a < 3; ++a)
      for (Index b = 0; b < 3; ++b) {
        const double size = commutator(L[static_cast<std::size_t>(a)], L[static_cast<std::size_t>(b)]).spectral_norm();
        epsilon = std::max(epsilon, size);
        sum += static_cast<double>(std::abs(r[a] * s[b])) * size;
        if (a < b) area += static_cast<double>(std::abs(r[a] * s[b] - r[b] * s[a])) * size;
      }
    const M A = combined(L, r), B = combined(L, s);
    const double found = commutator(A, B).spectral_norm(), lengths = one_norm(r) * one_norm(s);
    const double rounding = 80 * (1 + A.norm() + B.norm()) * u;
    absolute.add(sum / (epsilon * lengths));
    absolute.add((split(A, B) - rounding) / (epsilon * lengths / 2));
    sums.add(found / sum);
    areas.add(std::max(found / area, area / sum));
  }
  ledger.holds("4.30", sums.value(), 1, "‖[A(r), A(s)]‖ ≤ Σ_ab |r_a| |s_b| ε_ab; ratio", "E §F.5, eq. (30)");
  ledger.holds("4.31", absolute.value(), 1 + 64 * u,
               "‖e^{-A(r)} e^{A(s)} - e^{A(s) - A(r)}‖ ≤ ½ ε ‖r‖₁ ‖s‖₁ with ε = max ε_ab, so C₂ = ½ is absolute; ratio",
               "E §F.5, eq. (31)");
  ledger.holds("4.31a", areas.value(), 1 + 64 * u,
               "sharper: ‖[A(r), A(s)]‖ ≤ Σ_{a<b} |r_a s_b - r_b s_a| ε_ab ≤ the sum of (30); ratio",
               "extension of E §F.5, eq. (30)");
}

template <class Scalar>
void perturbed_transforms(Ledger& ledger, Random& random) {
  using M = Dense<Scalar>;
  const double u = unit_roundoff<Scalar>;
  const auto I = M::identity(5);
  Largest inverse, transform, skew;
  for (int n = 0; n < 400; ++n) {
    const double eta = random.uniform(.01, .95);
    M E = random.matrix<Scalar>(5, 5), K = random.skew<Scalar>(5);
    if (n % 2 == 0) E += E.transpose();
    E *= static_cast<Scalar>(eta / E.spectral_norm());
    K *= static_cast<Scalar>(eta / K.spectral_norm());
    const M S = std::pow(10, random.uniform(-3, 1)) * M(random.skew<Scalar>(5)), P = dense_cayley(S);
    inverse.add(apart((I + S + E).inverse(), (I + S).inverse()) / (eta / (1 - eta)));
    transform.add(apart(dense_cayley(S + E), P) / (2 * eta / (1 - eta)));
    skew.add(apart(dense_cayley(S + K), P) / (2 * eta));
  }
  const double allowed = 1 + 1e5 * u;  // the systems are solved with condition numbers of hundreds
  ledger.holds("4.32", inverse.value(), allowed,
               "‖(I + S)⁻¹ - (I + S₋)⁻¹‖ ≤ η/(1 - η) for skew S₋ and ‖S - S₋‖ ≤ η < 1; ratio", "E §F.5, eq. (32)");
  const auto two = M::identity(2);
  ledger.holds("4.32s", std::abs(apart((two - .9 * two).inverse(), two) / 9 - 1), 64 * u,
               "it is attained: S₋ = 0, S = -η I", "extension of E §F.5, eq. (32)");
  ledger.erratum("4.33", apart(dense_cayley(-.999 * two), two) / .999, 1000,
                 "‖P(S) - P(S₋)‖ ≤ C₃ η with an absolute C₃; S₋ = 0, S = -.999 I asks for 2000", "E §F.5, eq. (33)",
                 "C₃ = 2/(1 - η), and 2 where S is skew as well; ratio", std::max(transform.value(), skew.value()),
                 allowed);
  M stretched = .3 * M::identity(3) + M(random.skew<Scalar>(3));
  stretched(1, 1) = Scalar(-.15);
  const M P = dense_cayley(stretched);
  ledger.control("4.33o", apart(P.transpose() * P, M::identity(3)), 1e-3,
                 "P(S) is orthogonal for the S = S₋ + E of (32) and (33), which is not skew",
                 "E §F.5, eq. (32), eq. (33)");
}

}  // namespace detail

/// Decides 4.29 to 4.33 on random inputs of this seed.
template <class Scalar>
void perturbation_propositions(Ledger& ledger, std::uint64_t seed) {
  Random random(seed);
  detail::commutator_bounds<Scalar>(ledger, random);
  detail::perturbed_transforms<Scalar>(ledger, random);
}

}  // namespace SYMPOW_NAMESPACE::verify
