// Lemma 2 on structured rotations: the exponential in planes, the relative law and what the rotations share with RoPE:
// 4.10 to 4.13.
#pragma once

#include <utility>

#include <sympow/structured/generator_families.hpp>
#include <sympow/verify/proposition.hpp>
#include "propositions/dense_rotations.hpp"
#include "propositions/largest.hpp"

namespace SYMPOW_NAMESPACE::verify {
namespace detail {

/// A family of three generators of R^8 with three planes, and pairs of positions.
template <class Scalar>
struct PositionedFamily {
  using M = Dense<Scalar>;
  using V = DenseVector<Scalar>;

  DenseFamily<Scalar> dense;
  std::vector<std::pair<V, V>> pairs;

  explicit PositionedFamily(Random& random) : dense(random, 3, 3, 2) {
    for (int n = 0; n < 20; ++n) {
      const V r = random.vector<Scalar>(3), s = random.vector<Scalar>(3);
      pairs.emplace_back(3 * r, 3 * s);
    }
  }

  [[nodiscard]] const CommutingGenerators<Scalar>& family() const { return dense.family; }
  [[nodiscard]] Index dimension() const { return dense.family.dimension(); }
  /// A(r) = Σ r_k L_k, dense.
  [[nodiscard]] M exponent(const V& r) const { return combined(dense.L, r); }
  /// exp A(r) by a series, which knows nothing of planes.
  [[nodiscard]] M turn(const V& r) const { return exponential(exponent(r)); }
  /// R_STR(r) of the library, as a matrix.
  [[nodiscard]] M structured(const V& r) const { return family().at(r).toDenseMatrix(); }

  /// The largest violation(r, s) over the pairs, in units of what a rounding u makes of two turns: d (1 + ‖A(r)‖ +
  /// ‖A(s)‖).
  template <class Violation>
  [[nodiscard]] double largest(const Violation& violation) const {
    Largest worst;
    for (const auto& [r, s] : pairs) {
      const double norms = exponent(r).norm() + exponent(s).norm();
      worst.add(violation(r, s) / (static_cast<double>(dimension()) * (1 + norms)));
    }
    return worst.value();
  }
};

/// J = [0 -1; 1 0], the generator of the family of one plane.
template <class Scalar>
[[nodiscard]] Dense<Scalar> plane_generator() {
  return CommutingGenerators<Scalar>::from_frequencies(Dense<double>::constant(1, 1, 1)).generator(0);
}

/// [R_2(θ_1) ⊕ … ⊕ R_2(θ_m) ⊕ I], d × d, entry by entry.
template <class Scalar>
[[nodiscard]] Dense<Scalar> plane_turns(const DenseVector<double>& theta, Index d) {
  auto turns = Dense<Scalar>::identity(d);
  for (Index u = 0; u < theta.size(); ++u) {
    turns(2 * u, 2 * u) = turns(2 * u + 1, 2 * u + 1) = static_cast<Scalar>(std::cos(theta[u]));
    turns(2 * u + 1, 2 * u) = static_cast<Scalar>(std::sin(theta[u]));
    turns(2 * u, 2 * u + 1) = -turns(2 * u + 1, 2 * u);
  }
  return turns;
}

template <class Scalar>
void exponential_in_planes(Ledger& ledger, const PositionedFamily<Scalar>& x) {
  using M = Dense<Scalar>;
  using V = DenseVector<Scalar>;
  const double u = unit_roundoff<Scalar>;
  const M U = x.family().basis(), J = plane_generator<Scalar>();
  const Index d = x.dimension();
  const double blocks = x.largest([&](const V& r, const V&) {
    auto expected = M::zero(d, d);
    const DenseVector<double> theta = x.family().angles(r);
    for (Index plane = 0; plane < theta.size(); ++plane) expected.set_part(2 * plane, 2 * plane, theta[plane] * J);
    return apart(U.transpose() * x.exponent(r) * U, expected);
  });
  ledger.holds("4.10", blocks, 2 * u, "Uᵀ A(r) U = θ_1 J ⊕ … ⊕ θ_m J ⊕ 0 with θ_u = Σ_k λ_ku r_k",
               "E §F.2, Lemma 2, eq. (10); E §2.1, \"In this coordinate system …\"");
  const double exponentials = x.largest([&](const V& r, const V&) {
    const M planes = U * plane_turns<Scalar>(x.family().angles(r), d) * U.transpose();
    return std::max(apart(x.turn(r), planes), apart(x.turn(r), x.structured(r)));
  });
  ledger.holds("4.11", exponentials, 2 * u, "exp A(r) = U [R_2(θ_1) ⊕ … ⊕ R_2(θ_m) ⊕ I] Uᵀ",
               "E §F, eq. (2); E §F.2, Lemma 2, eq. (11); E §2.2, \"Exponentiating A(r) produces …\"");

  const auto I = M::identity(2);
  Largest series;
  series.add(apart(J * J, -I));
  for (const double theta : {-2.5, -.4, 1e-3, 1.3, 3.0}) {
    double cosine = 0, sine = 0, term = 1;  // θⁿ/n!
    for (int n = 0; n < 40; term *= theta / ++n) (n % 2 == 0 ? cosine : sine) += n % 4 < 2 ? term : -term;
    const M turn = BlockRotation<Scalar>(DenseVector<double>::constant(1, 1, theta)).toDenseMatrix();
    series.add(apart(cosine * I + sine * J, turn));
    series.add(apart(exponential(theta * J), turn));
  }
  ledger.holds("4.11s", series.value(), 32 * u,
               "J² = -I, and exp(θJ) is the cosine series times I plus the sine series times J, which is R_2(θ); the "
               "printed brace is that sum",
               "E §F.2, \"Because J^2 = -I_2 we have …\"");
}

template <class Scalar>
void relative_law(Ledger& ledger, const PositionedFamily<Scalar>& x) {
  using M = Dense<Scalar>;
  using V = DenseVector<Scalar>;
  const double u = unit_roundoff<Scalar>;
  const auto at = [&](const V& r) { return x.family().at(r); };
  const double relative = x.largest([&](const V& r, const V& s) {
    const M difference = x.turn(s - r), structured = (at(r).transpose() * at(s)).toDenseMatrix();
    return std::max(apart(x.turn(r).transpose() * x.turn(s), difference), apart(structured, difference));
  });
  ledger.holds("4.12", relative, 3 * u, "R_STR(r)ᵀ R_STR(s) = R_STR(s - r)",
               "E §F.2, Lemma 2, eq. (12); E §1, \"We prove that the induced exponentials …\"; E §2.2, \"Because A(r) "
               "and A(s) commute …\"");
  const double exponents = x.largest([&](const V& r, const V& s) {
    const M A = x.exponent(r), B = x.exponent(s);
    const double size = 1 + A.norm();  // the commutator is quadratic in the turns
    return std::max(commutator(A, B).spectral_norm() / size,
                    apart(exponential(-A) * exponential(B), exponential(B - A)));
  });
  ledger.holds("4.13", exponents, 3 * u, "[A(r), A(s)] = 0 and e^{-A(r)} e^{A(s)} = e^{A(s) - A(r)}",
               "E §F.2, eq. (13)");
  const double group = x.largest([&](const V& r, const V& s) {
    const M rs = x.structured(r) * x.structured(s), sum = x.turn(r + s);
    const M product = (at(r) * at(s)).toDenseMatrix(), swapped = x.structured(s) * x.structured(r);
    return std::max({apart(rs, sum), apart(product, sum), apart(rs, swapped)});
  });
  ledger.holds("4.12a", group, 3 * u, "R_STR(r) R_STR(s) = R_STR(r + s) = R_STR(s) R_STR(r): R^{d_c} acts as a torus",
               "E §1, \"First …\"");
  const double orthogonal = x.largest([&](const V& r, const V&) {
    const M R = x.structured(r);
    return std::max(apart(R.transpose() * R, M::identity(x.dimension())), std::abs(R.determinant() - 1));
  });
  ledger.holds("4.12b", orthogonal, 2 * u, "R_STR(r)ᵀ R_STR(r) = I, det R_STR(r) = 1",
               "E §F.2, Lemma 2; E §2.2, \"Exponentiating A(r) produces …\"");
  const M Pi = x.dense.projector();
  const double commuting = x.largest([&](const V& r, const V&) {
    const M turned = at(r) * Pi, projected = x.family().project_active(x.structured(r));
    return std::max(apart(turned, projected), commutator(x.turn(r), Pi).spectral_norm());
  });
  ledger.holds("4.12c", commuting, 2 * u, "R_STR(r) Π_act = Π_act R_STR(r)", "E §F.2, Lemma 2; E §2.2, \"Moreover …\"");
}

template <class Scalar>
void rotary_scope(Ledger& ledger, const PositionedFamily<Scalar>& x, Random& random) {
  using M = Dense<Scalar>;
  using V = DenseVector<Scalar>;
  const double u = unit_roundoff<Scalar>;
  const M U = x.family().basis();
  V q = random.vector<Scalar>(x.dimension()), k = random.vector<Scalar>(x.dimension());
  q = q.normalized();
  k = k.normalized();
  const auto rotary = x.family().in_block_basis();
  const double logits = x.largest([&](const V& r, const V& s) {
    const V left = rotary.at(r) * (U.transpose() * q), right = rotary.at(s) * (U.transpose() * k);
    return std::abs((x.turn(r) * q).dot(x.turn(s) * k) - left.dot(right));
  });
  ledger.holds("4.12d", logits, u,
               "the logit is that of rotary positions of d_c coordinates on Uᵀq and Uᵀk: what generalises RoPE is a "
               "change of basis and the angles",
               "extension of E §1, \"This strictly generalizes the RoPE paradigm …\"");

  const auto rope = rope_family<Scalar>(x.dimension());
  const M L = rope.generator(0);
  const CommutingGenerators<Scalar> found({L.plain()});
  const DenseVector<double> rates = rope_frequencies<double>(x.dimension());
  Largest rotations;
  for (const double n : {1., 7., 100.}) {
    const auto position = V::constant(1, 1, static_cast<Scalar>(n));
    const M dense = exponential(n * L), turns = plane_turns<Scalar>(n * rates, x.dimension());
    for (const M& R : {turns, M(rope.at(position).toDenseMatrix()), M(found.at(position).toDenseMatrix())})
      rotations.add(apart(R, dense) / (static_cast<double>(x.dimension()) * (1 + n)));
  }
  ledger.holds("4.12e", rotations.value(), 3 * u, "RoPE is the case d_c = 1, L = ω_1 J ⊕ … ⊕ ω_{d/2} J",
               "E §1, \"This strictly generalizes the RoPE paradigm …\"");

  std::vector<M> bad = x.dense.L;
  for (M& B : bad) B += .3 * M(random.skew<Scalar>(x.dimension()));
  const auto turn = [&](const V& r) { return exponential(combined(bad, r)); };
  Largest broken;
  for (const auto& [r, s] : x.pairs) broken.add(apart(turn(r).transpose() * turn(s), turn(s - r)));
  ledger.control("4.12m", broken.value(), .5, "the relative law for generators that do not commute",
                 "premise of E §F.2, Lemma 2, eq. (12)");
}

}  // namespace detail

/// Decides 4.10 to 4.13 on random inputs of this seed.
template <class Scalar>
void structured_rotation_propositions(Ledger& ledger, std::uint64_t seed) {
  Random random(seed);
  const detail::PositionedFamily<Scalar> x(random);
  detail::exponential_in_planes(ledger, x);
  detail::relative_law(ledger, x);
  detail::rotary_scope(ledger, x, random);
}

}  // namespace SYMPOW_NAMESPACE::verify
