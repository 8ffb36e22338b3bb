// Proposition 2 of the conformal paper, its proof and what the determinant in it really is: propositions P2a to P2n.
#pragma once

#include <array>
#include <cmath>
#include <complex>
#include <cstdint>
#include <numbers>
#include <utility>

#include <sympow/core/random.hpp>
#include <sympow/rotation/block_rotation.hpp>
#include <sympow/verify/proposition.hpp>
#include "propositions/largest.hpp"
#include "propositions/lift_identities.hpp"

namespace SYMPOW_NAMESPACE::verify {
namespace detail {

/// P2g to P2j.fix: the tensor product of matrices, on which the papers' proof rests.
template <class Scalar>
void tensor_lift_identities(Ledger& ledger, Random& random) {
  constexpr double u = unit_roundoff<Scalar>;
  using M = Dense<Scalar>;
  const M rotation = random.rotation<Scalar>(3), cube = kronecker_power(rotation, 3);
  const double roundings = 2 * 3 + 2 * 27 + 2 * 8 * 3 * 3, gram = size_of_gram(cube);
  Largest turns;
  turns.add<Scalar>(cube.transpose() * cube, M::identity(27));
  const auto [log_cube, sign_cube] = log_determinant(cube.in_double());
  turns.add(std::abs(log_cube) + std::abs(sign_cube - 1));
  ledger.holds("P2g", turns.value(), 27 * roundings * gram * u,
               "P^{⊗p} is a rotation if P is: the case that the proof proves",
               "A §A.3, Proposition 2, \"Let V be a vector space …\"; B §4, \"Let V be a vector space …\"");

  const auto product_of = [](const M& m) -> M {
    const Vector<Scalar> a = m.column(0), b = m.column(1), c = m.column(2);
    return tensor_product(a, b, c);
  };
  const M v = random.matrix<Scalar>(3, 3), w = random.matrix<Scalar>(3, 3), size = absolute(rotation);
  const M left = cube * product_of(v), right = cube * product_of(w);
  const M left_size = size * absolute(v), right_size = size * absolute(w);
  double expected = 1, scale = 1;
  for (Index i = 0; i < 3; ++i) {
    expected *= v.column(i).in_double().dot(w.column(i).in_double());
    scale *= left_size.column(i).in_double().dot(right_size.column(i).in_double());
  }
  ledger.holds("P2h", std::abs(inner_product(left, right) - expected) / scale, (2 * roundings + 27) * u,
               "⟨P^{⊗p}(⊗v_i), P^{⊗p}(⊗w_i)⟩ = Π v_i·w_i for a rotation P, relative to the same of absolute values",
               "A §A.3, Proposition 2, \"Step 1: Orthogonality of …\"; B §4, \"Step 1: Orthogonality of …\"");

  const M a = moderate_matrix<Scalar>(random, 3), b = moderate_matrix<Scalar>(random, 4);
  const auto [log_a, sign_a] = log_determinant(a.in_double());
  const auto [log_b, sign_b] = log_determinant(b.in_double());
  const auto [log_ab, sign_ab] = log_determinant(kronecker(a, b).in_double());
  const double product_bound = determinant_bound<Scalar>(12, 2, condition_of_moderate(a) * condition_of_moderate(b));
  ledger.holds("P2i", std::abs(log_ab - (4 * log_a + 3 * log_b)) + std::abs(sign_ab - sign_b), product_bound,
               "det(A ⊗ B) = det(A)^dim B det(B)^dim A, compared as logarithms and signs",
               "A §A.3, Proposition 2, \"Step 2: Determinant of …\"; B §4, \"Step 2: Determinant of …\"");

  const double log_2 = std::log(2.0);
  Dense<double> doubling = Dense<double>::identity(2);
  doubling(0, 0) = 2;
  const double exponent_of_2 = log_determinant(kronecker_power(doubling, 3)).first / log_2;
  ledger.erratum("P2j", std::abs(exponent_of_2 - 3 * 2), 12 * u,
                 "det(P^{⊗p}) = det(P)^{pd}; for diag(2, 1) and p = 3 that is 2^6, compared as log2",
                 "A §A.3, Proposition 2, \"In our case …\"; B §4, \"In our case …\"",
                 "det(P^{⊗p}) = det(P)^{p d^{p-1}}, here 2^12", std::abs(exponent_of_2 - 3 * 4), 12 * u);

  const auto [log_mirror, sign_mirror] =
      log_determinant(kronecker_power(random_reflection<Scalar>(random, 2), 1).in_double());
  const double determinant = sign_mirror * std::exp(log_mirror);
  ledger.erratum("P2j'", std::abs(determinant - 1), 16 * u,
                 "the same for a reflection of the plane and p = 1: (-1)^{1·2} = 1",
                 "A §A.3, Proposition 2, \"In our case …\"; B §4, \"In our case …\"",
                 "det(P)^{p d^{p-1}} = (-1)^{1·1} = -1", std::abs(determinant + 1), 16 * u);

  Largest corrected;
  double bound = 0;
  for (const auto& [d, p] : {std::pair<Index, int>{2, 1}, {2, 3}, {2, 4}, {3, 2}, {3, 3}, {4, 3}}) {
    const M g = moderate_matrix<Scalar>(random, d), power = kronecker_power(g, p);
    const auto [log_det, sign] = log_determinant(g.in_double());
    const auto [log_power, sign_power] = log_determinant(power.in_double());
    const Index exponent = p * tensor_dimension(d, p) / d;
    corrected.add(std::abs(log_power - static_cast<double>(exponent) * log_det));
    corrected.add(std::abs(sign_power - (exponent % 2 == 0 ? 1 : sign)));
    bound = std::max(bound, determinant_bound<Scalar>(power.rows(), p, std::pow(condition_of_moderate(g), p)));
  }
  ledger.holds("P2j.fix", corrected.value(), bound,
               "det(P^{⊗p}) = det(P)^{p d^{p-1}}, compared as logarithms and signs",
               "correction of A §A.3, Proposition 2, \"In our case …\"; correction of B §4, \"In our case …\"");
}

/// P2k: the determinant of the lift to tensors is not that of the lift to φ.
template <class Scalar>
void determinant_control(Ledger& ledger, Random& random) {
  const Dense<Scalar> mirror = random_reflection<Scalar>(random, 2),
                      compact = induced<2>(mirror.plain()).toDenseMatrix();
  const auto [log_tensor, sign_tensor] = log_determinant(kronecker_power(mirror, 2).in_double());
  const auto [log_compact, sign_compact] = log_determinant(compact.in_double());
  const double bound = (4 + 3) * 2 * roundings_of_lift(2, 2, 3) * size_of_gram(compact) * unit_roundoff<Scalar>;
  ledger.control(
      "P2k", std::abs(sign_tensor * std::exp(log_tensor) - sign_compact * std::exp(log_compact)), bound,
      "the lift to φ has the determinant of the lift to tensors: a reflection of the plane has -1 and +1 for p = 2",
      "A §A.3, Proposition 2, \"For mathematical simplicity …\"; B §4, \"For mathematical simplicity …\"");
}

/// P2m: orthogonality needs the weights.
template <class Scalar>
void weights_control(Ledger& ledger, Random& random) {
  const Matrix<Scalar> rotation = random.rotation<Scalar>(3);
  Dense<Scalar> unweighted = induced<3>(rotation).toDenseMatrix();
  const MultiIndices<3> indices(3);
  for (Index row = 0; row < indices.size(); ++row)
    for (Index column = 0; column < indices.size(); ++column) {
      const double ratio =
          static_cast<double>(multiplicity(indices[column])) / static_cast<double>(multiplicity(indices[row]));
      unweighted(row, column) *= static_cast<Scalar>(std::sqrt(ratio));
    }
  Largest skewed;
  skewed.add<Scalar>(unweighted.transpose() * unweighted, Dense<Scalar>::identity(10));
  const double bound = 2 * roundings_of_lift(3, 3, 10) * size_of_gram(unweighted) * unit_roundoff<Scalar>;
  ledger.control("P2m", skewed.value(), bound,
                 "without the weights √(p!/Π c_i!) the lift of a rotation is orthogonal as well",
                 "premise of A §3.3, Proposition 2");
}

/// P2n. The eigenvectors of R(θ) are e_{2j-1} ∓ i e_{2j}, with eigenvalues e^{±iθ_j}; Sym^3 of them diagonalises
/// Sym^3(R(θ)).
template <class Scalar>
void eigenvalues_of_lift(Ledger& ledger, Random& random) {
  using Complex = std::complex<double>;
  Vector<Scalar> angles(2);
  for (Scalar& angle : angles) angle = static_cast<Scalar>(random.uniform(0, 2 * std::numbers::pi));
  const Matrix<Scalar> turned = induced<3>(BlockRotation<Scalar>(angles)).toDenseMatrix();
  const auto eigenvector = [](Index i, Index j) {
    if (i / 2 != j / 2) return Complex(0);
    return i % 2 == 0 ? Complex(std::sqrt(.5)) : Complex(0, j % 2 == 0 ? -std::sqrt(.5) : std::sqrt(.5));
  };
  // The entry of the lift, by its definition.
  const auto lifted_eigenvector = [&](const MultiIndex<3>& alpha, const MultiIndex<3>& beta) {
    Complex permanent = 0;
    for (const auto& [k, l, m] : {std::array{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}})
      permanent += eigenvector(alpha[0], beta[k]) * eigenvector(alpha[1], beta[l]) * eigenvector(alpha[2], beta[m]);
    return permanent / std::sqrt(static_cast<double>(stabilizer_order(alpha) * stabilizer_order(beta)));
  };
  const MultiIndices<3> weights(4);
  Largest off;
  for (Index n = 0; n < weights.size(); ++n) {
    double phase = 0;
    for (const Index j : weights[n]) phase += (j % 2 == 0 ? 1 : -1) * static_cast<double>(angles[j / 2]);
    for (Index row = 0; row < weights.size(); ++row) {
      Complex image = 0;
      for (Index m = 0; m < weights.size(); ++m)
        image += static_cast<double>(turned(row, m)) * lifted_eigenvector(weights[m], weights[n]);
      off.add(std::abs(image - std::polar(1.0, phase) * lifted_eigenvector(weights[row], weights[n])));
    }
  }
  // |R| and the absolute eigenvectors have norms of at most √2.
  ledger.holds(
      "P2n", off.value(), roundings_of_lift(4, 3, 20) * std::pow(2.0, 3) * unit_roundoff<Scalar>,
      "Sym^p(R(θ)) is diagonal in the basis lifted from R(θ)'s complex eigenvectors, with eigenvalues e^{i Σ m_j θ_j}",
      "extension of A §3.3, Proposition 2");
}

}  // namespace detail

/// Decides P2a to P2n in the given type and adds them to the ledger.
template <class Scalar>
void induced_propositions(Ledger& ledger, std::uint64_t seed) {
  Random random(seed);
  detail::LiftIdentities<Scalar> lifts;
  using Lift = detail::Lift<Scalar>;
  lifts.check(Lift::template of<1>(), random, 2);
  for (const Index d : {2, 3, 4}) lifts.check(Lift::template of<2>(), random, d);
  for (const Index d : {2, 3, 4}) lifts.check(Lift::template of<3>(), random, d);
  for (const Index d : {2, 3}) lifts.check(Lift::template of<4>(), random, d);
  lifts.check(Lift::template of<5>(), random, 2);
  const auto holds = [&](const char* id, const auto& found, const char* statement, const char* source) {
    ledger.holds(id, found.residual.value(), found.bound, statement, source);
  };
  holds("P2a", lifts.image, "φ(P k) = P̄ φ(k) with P̄_{αβ} = per(P[α|β])/√(Π c_i(α)! Π c_i(β)!), relative to ‖|P||k|‖^p",
        "A §3.3, Proposition 2; A §A.3, Proposition 2; B §4, \"This equivalence stems from the following …\"");
  holds("P2b", lifts.orthogonal, "P̄ᵀ P̄ = I if P is a rotation",
        "A §3.3, Proposition 2; A §A.3, Proposition 2; B §4, \"This equivalence stems from the following …\"");
  holds("P2c", lifts.determinant, "det P̄ = 1 if P is a rotation",
        "A §3.3, Proposition 2; A §A.3, Proposition 2; B §4, \"This equivalence stems from the following …\"");
  holds("P2d", lifts.product, "Sym^p(P G) = Sym^p(P) Sym^p(G) for any G, relative to the same of |P|, |G|",
        "extension of A §3.3, Proposition 2");
  holds("P2e", lifts.bridge, "φ_TP = J φ_SYM with JᵀJ = I, P^{⊗p} J = J P̄ and Jᵀ P^{⊗p} J = P̄",
        "extension of A §A.3, Proposition 2, \"For mathematical simplicity …\"");
  holds("P2f", lifts.power_of_determinant, "det Sym^p(G) = det(G)^C(d+p-1, d), compared as logarithms and signs",
        "extension of A §3.3, Proposition 2");
  detail::tensor_lift_identities<Scalar>(ledger, random);
  detail::determinant_control<Scalar>(ledger, random);
  holds("P2l", lifts.reflection, "det Sym^p of a reflection is (-1)^C(d+p-1, d)", "extension of A §3.3, Proposition 2");
  detail::weights_control<Scalar>(ledger, random);
  detail::eigenvalues_of_lift<Scalar>(ledger, random);
}

}  // namespace SYMPOW_NAMESPACE::verify
