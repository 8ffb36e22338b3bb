// Lemma 3 and Theorem 1 on structured rotations: Cayley transforms, those that fix every plane, and logits after them:
// 4.14 to 4.19, 4.23 and 4.24.
#pragma once

#include <algorithm>
#include <complex>
#include <limits>

#include <sympow/structured/cayley.hpp>
#include <sympow/structured/post_rotation.hpp>
#include "propositions/structured_rotation_propositions.hpp"

namespace SYMPOW_NAMESPACE::verify {
namespace detail {

/// A family with positions, a general Cayley transform P(S) and one of 𝒜, the maps that fix every active plane.
template <class Scalar>
struct PostRotated {
  using M = Dense<Scalar>;

  PositionedFamily<Scalar> x;
  M S;
  Cayley<Scalar> general, member;
  M Pi, P, PA;  // the projector on the active space, and both transforms as matrices

  explicit PostRotated(Random& random)
      : x(random),
        S(random.skew<Scalar>(x.dimension())),
        general(cayley(S)),
        member(cayley(x.family(), 1.7 * plane_generator<Scalar>())),
        Pi(x.dense.projector()),
        P(general.toDenseMatrix()),
        PA(member.toDenseMatrix()) {}

  [[nodiscard]] M identity() const { return M::identity(x.dimension()); }
  /// The columns of U for the null space.
  [[nodiscard]] M null_basis() const {
    const Index null = x.family().null_dimension();
    return M(x.family().basis()).part(0, x.dimension() - null, x.dimension(), null);
  }
  /// R_sp(r) of the library.
  [[nodiscard]] PostRotation<Scalar, Cayley<Scalar>> rotation(const DenseVector<Scalar>& r,
                                                              const Cayley<Scalar>& map) const {
    return post_rotation(x.family().at(r), map);
  }
};

/// (15) to (18) need a skew S alone.
template <class Scalar>
void cayley_transforms(Ledger& ledger, const PostRotated<Scalar>& y) {
  using M = Dense<Scalar>;
  const double u = unit_roundoff<Scalar>;
  const Index d = y.x.dimension();
  const M &S = y.S, &P = y.P, I = y.identity(), plus = I + S, minus = I - S, T = S.transpose();
  const double size = 4 * static_cast<double>(d) * plus.spectral_norm() * u;
  const M inverse = plus.inverse();
  const M product = inverse.transpose() * minus.transpose() * minus * inverse;
  ledger.holds("4.15", std::max(apart(product, I), apart(P.transpose() * P, I)), size,
               "PᵀP = (I + S)⁻ᵀ (I - S)ᵀ (I - S) (I + S)⁻¹ = I", "E §F.3, eq. (15)");
  const M second = (I - T).inverse() * (I + T) * minus * inverse, third = inverse * plus * minus * inverse;
  const M chain = minus.inverse() * plus * minus * inverse;
  ledger.erratum("4.16", apart(second, I), .1, "(I - Sᵀ)⁻¹ (I + Sᵀ) (I - S) (I + S)⁻¹ is (15)", "E §F.3, eq. (16)",
                 "it is P²; (15) is (I - S)⁻¹ (I + S) (I - S) (I + S)⁻¹ = I",
                 std::max(apart(second, P * P), apart(chain, I)), size);
  ledger.erratum(
      "4.17", apart(third, I), .1, "(I + S)⁻¹ (I + S) (I - S) (I + S)⁻¹ = I", "E §F.3, eq. (17)",
      "it is P; (I - S)⁻¹ [(I + S) (I - S)] (I + S)⁻¹ = I, for I + S and I - S commute",
      std::max({apart(third, P), apart(chain, I), commutator(plus, minus).spectral_norm() / plus.spectral_norm()}),
      size);

  std::complex<double> determinant = 1;
  double regular = 0;  // the least singular value of S - iμ I, as a real matrix
  const auto sizes = S.singular_values();
  for (Index n = 0; n < d; n += 2) {  // each |μ| twice, for μ and -μ
    auto both = M::zero(2 * d, 2 * d);
    both.set_part(0, 0, S);
    both.set_part(d, d, S);
    both.set_part(0, d, sizes[n] * I);
    both.set_part(d, 0, -sizes[n] * I);
    regular = std::max(regular, both.singular_values()[2 * d - 1]);
    for (const std::complex<double> mu : {std::complex<double>(0, sizes[n]), std::complex<double>(0, -sizes[n + 1])})
      determinant *= (1. - mu) / (1. + mu);
  }
  ledger.holds("4.18",
               std::max({std::abs(P.determinant() - 1), std::abs(determinant - 1.), regular / S.spectral_norm()}), size,
               "the eigenvalues of S are iμ, and det P = Π (1 - iμ)/(1 + iμ) = 1",
               "E §F.3, Lemma 3, eq. (18); E §2.3, \"Such transforms remain in …\"");

  Largest below, odd;
  for (const double scale : {1e-3, 1., 1e3})
    for (const Index n : {d, d - 1}) {
      const auto values = (M::identity(n) + scale * S.part(0, 0, n, n)).singular_values();
      below.add((1 - values[n - 1]) / values[0]);
      if (n % 2 == 1) odd.add(std::abs(1 - values[n - 1]) / values[0]);
    }
  ledger.holds("4.18i", std::max(below.value(), odd.value()), 8 * static_cast<double>(d) * u,
               "I + S is invertible: its smallest singular value is at least 1, and 1 for odd d",
               "E §F.3, \"Because the eigenvalues of a real …\"");

  const CommutingGenerators<Scalar> planes({S.plain()});
  Dense<double> angles = planes.frequencies();
  for (Index n = 0; n < angles.cols(); ++n) angles(0, n) = -2 * std::atan(angles(0, n));
  const auto turned =
      CommutingGenerators<Scalar>::from_frequencies(angles, planes.null_dimension()).in_basis(planes.basis());
  const auto one = DenseVector<Scalar>::constant(1, 1, Scalar(1));
  ledger.holds(
      "4.18e",
      std::max({apart<Scalar>(P, turned.at(one).toDenseMatrix()), apart(P, exponential<Scalar>(turned.generator(0))),
                apart(P, 2 * inverse - I), apart<Scalar>(cayley(-S).toDenseMatrix(), P.transpose()),
                apart<Scalar>(y.general.transpose().toDenseMatrix(), P.transpose())}),
      size, "P = exp(-2 artanh S), the angles -2 arctan μ, P = 2 (I + S)⁻¹ - I, and P(-S) = P(S)ᵀ",
      "extension of E §F.3, Lemma 3");
}

/// (14): which Cayley transforms fix every active plane.
template <class Scalar>
void block_identities(Ledger& ledger, const PostRotated<Scalar>& y, Random& random) {
  using M = Dense<Scalar>;
  const double u = unit_roundoff<Scalar>, bound = 8 * static_cast<double>(y.S.rows()) * u;
  const auto& family = y.x.family();
  const M &Pi = y.Pi, I = y.identity(), N = y.null_basis(), J = plane_generator<Scalar>();
  const auto outside = [&](const M& Q) { return std::max(apart(Q * Pi, Pi), apart(Pi * Q, Pi)); };
  ledger.holds("4.14",
               std::max({outside(y.PA), apart(Pi * y.PA * Pi, Pi), distance_to_block_identity(family, y.member)}),
               bound, "P ∈ 𝒜: P Π_act = Π_act P = Π_act P Π_act = Π_act",
               "E §F.3, Lemma 3, eq. (14); E §2.3, \"Such transforms remain in …\"");

  const auto angle = DenseVector<double>::constant(1, 1, random.uniform(.3, 2.5));
  const M turned = Pi + N * plane_turns<Scalar>(angle, 2) * N.transpose();
  M S = (I + turned).solve(I - turned);
  S = (S - S.transpose()) / 2;
  M inside = 1.7 * N * J * N.transpose();
  inside = (inside - inside.transpose()) / 2;
  const M from_null = cayley(inside).toDenseMatrix();
  ledger.holds("4.14i",
               std::max({(S * Pi).spectral_norm(), apart<Scalar>(cayley(S).toDenseMatrix(), turned), outside(from_null),
                         apart(from_null, y.PA)}),
               bound, "P(S) ∈ 𝒜 ⇔ S Π_act = 0; both ways", "extension of E §F.3, eq. (14)");

  Largest ratio;
  for (const double size : {std::sqrt(u), std::sqrt(std::sqrt(u)), 1., 30.}) {
    const M skew = inside + size * y.S;
    const double distance = distance_to_block_identity(family, cayley(skew)), twice = 2 * (skew * Pi).spectral_norm();
    ratio.add((distance - bound) / twice);
    ratio.add((twice - bound) / ((I + skew).spectral_norm() * distance));
  }
  ledger.holds("4.14q", ratio.value(), 1, "‖(P - I) Π_act‖ ≤ 2 ‖S Π_act‖ ≤ ‖I + S‖ ‖(P - I) Π_act‖; ratio",
               "extension of E §F.3, eq. (14)");

  double least = std::numeric_limits<double>::infinity();
  const M opposite = Pi - N * N.transpose();
  for (const double t : {1., 10., 100., 1000.})
    least = std::min(least, t * apart<Scalar>(cayley(family, t * J).toDenseMatrix(), opposite));
  ledger.control(
      "4.14n", least, 1.4,
      "every member of 𝒜 is a Cayley transform; that of S = t J stays 2/√(1 + t²) away from R_null = -I; the "
      "least t times the distance",
      "E §F.3, eq. (14)");
}

/// (19) and its relative law.
template <class Scalar>
void post_rotations(Ledger& ledger, const PostRotated<Scalar>& y) {
  using M = Dense<Scalar>;
  using V = DenseVector<Scalar>;
  using P = Cayley<Scalar>;
  const double u = unit_roundoff<Scalar>;
  const auto& x = y.x;
  const M &Pi = y.Pi, I = y.identity();
  const auto sp = [&](const V& r, const P& map) -> M { return y.rotation(r, map).toDenseMatrix(); };
  const auto law = [&](const V& r, const V& s, const P& map) -> M {
    return y.rotation(r, map).relative(y.rotation(s, map), I);
  };
  const double active = x.largest([&](const V& r, const V& s) {
    const M expected = Pi * x.turn(s - r) * y.PA * Pi;
    return std::max({apart(Pi * law(r, s, y.member) * Pi, expected),
                     apart(Pi * sp(r, y.member).transpose() * sp(s, y.member) * Pi, expected),
                     apart(Pi * sp(s - r, y.member) * Pi, expected)});
  });
  ledger.holds("4.19", active, 2 * u, "P ∈ 𝒜: Π R_sp(r)ᵀ R_sp(s) Π = Π R_sp(s - r) Π, R_sp(r) = R_STR(r) P",
               "E §F.3, eq. (19); E §2.3, \"Setting …\"");
  const double special = x.largest([&](const V& r, const V&) {
    const M R = sp(r, y.general);
    return std::max({apart(R, x.turn(r) * y.P), apart(R.transpose() * R, I), std::abs(R.determinant() - 1)});
  });
  ledger.holds("4.19s", special, 2 * u, "R_sp(r)ᵀ R_sp(r) = I, det R_sp(r) = 1", "E §F.3, eq. (19)");
  double whole = std::numeric_limits<double>::infinity(), general = whole;
  for (const auto& [r, s] : x.pairs) {
    whole = std::min(whole, apart(law(r, s, y.member), sp(s - r, y.member)));
    general = std::min(general, apart(Pi * law(r, s, y.general) * Pi, Pi * sp(s - r, y.general) * Pi));
  }
  ledger.control("4.19f", whole, 1.7, "the relative law of R_sp on the whole space, for P ∈ 𝒜", "E §F.3, eq. (19)");
  ledger.control("4.19g", general, .1, "the relative law of R_sp on the active space, for any P", "E §F.3, eq. (19)");
  const double every = x.largest([&](const V& r, const V& s) {
    const M expected = y.P.transpose() * x.turn(s - r) * y.P;
    return std::max(apart((x.turn(r) * y.P).transpose() * x.turn(s) * y.P, expected),
                    apart(law(r, s, y.general), expected));
  });
  ledger.holds("4.19t", every, 3 * u, "R_sp(r)ᵀ R_sp(s) = Pᵀ R_STR(s - r) P for every P",
               "extension of E §F.3, eq. (19)");
  const double projected =
      x.largest([&](const V& r, const V&) { return apart(Pi * sp(r, y.member) * Pi, Pi * x.turn(r) * Pi); });
  ledger.holds("4.24", projected, 2 * u, "P ∈ 𝒜: Π R_sp(r) Π = Π R_STR(r) Π", "E §F.4, \"Lemma 3 ensures …\"");
}

/// (20) to (24): the projected logit.
template <class Scalar>
void projected_logits(Ledger& ledger, const PostRotated<Scalar>& y, Random& random) {
  using M = Dense<Scalar>;
  using V = DenseVector<Scalar>;
  const double u = unit_roundoff<Scalar>;
  const auto& x = y.x;
  const auto& family = x.family();
  const Index d = x.dimension(), active = family.active_dimension();
  const double scale = std::sqrt(static_cast<double>(active));
  V q = random.vector<Scalar>(d), k = random.vector<Scalar>(d);
  q = q.normalized();
  k = k.normalized();
  const M &Pi = y.Pi, I = y.identity(), U = family.basis();
  const auto logit = [&](const V& r, const V& s, const auto& P) {
    return static_cast<double>(projected_logit(family, P, q, r, k, s));
  };
  const auto defined = [&](const V& r, const V& s, const M& P) {  // by (20) to (22)
    return (Pi * x.turn(r) * P * Pi * q).dot(Pi * x.turn(s) * P * Pi * k) / scale;
  };
  const auto displaced = [&](const V& r, const V& s) {  // (23)
    return (Pi * q).dot(Pi * x.turn(s - r) * Pi * Pi * k) / scale;
  };
  const double theorem = x.largest([&](const V& r, const V& s) {
    const double expected = displaced(r, s);
    return std::max(std::abs(logit(r, s, y.member) - expected), std::abs(defined(r, s, y.PA) - expected));
  });
  ledger.holds("4.23", theorem, u, "P ∈ 𝒜: α = (2m)^-½ (Πq)ᵀ Π R_STR(r_j - r_i) Π (Πk)",
               "E §F.4, Theorem 1, eq. (20), eq. (21), eq. (22), eq. (23), eq. (24); E §3.1, \"Combining the "
               "structured rotations with the …\"");
  const double invisible = x.largest([&](const V& r, const V& s) {
    return std::max(std::abs(logit(r, s, y.member) - logit(r, s, I)),
                    std::abs(logit(r, s, y.member) - defined(r, s, I)));
  });
  ledger.holds("4.23i", invisible, u, "P ∈ 𝒜 has no effect on the logit at all", "extension of E §F.4, Theorem 1");

  const M P = random.rotation<Scalar>(d), planes = U.part(0, 0, d, active), A = planes.transpose() * P * planes;
  const V qa = A * (planes.transpose() * q), ka = A * (planes.transpose() * k);
  const double relative = x.largest([&](const V& r, const V& s) {
    const M R = plane_turns<Scalar>(family.angles(s - r), active);
    const double expected = qa.dot(R * ka) / scale;
    return std::max(std::abs(logit(r, s, P) - expected), std::abs(defined(r, s, P) - expected));
  });
  ledger.holds("4.23r", relative, u,
               "for every P the logit is relative: α = (2m)^-½ qᵀ Aᵀ R_act(r_j - r_i) A k, A the active block of P",
               "correction of E §F.4, Theorem 1, eq. (23)");
  const auto four = CommutingGenerators<Scalar>::from_frequencies(random.matrix(1, 4)).in_basis(U);
  const auto other = four.at(V::constant(1, 1, Scalar(1)));
  const double commuting = x.largest([&](const V& r, const V& s) {
    const double expected = displaced(r, s);
    return std::max(std::abs(logit(r, s, other) - expected), std::abs(defined(r, s, other.toDenseMatrix()) - expected));
  });
  ledger.holds("4.23s", commuting, u,
               "P ∈ 𝒜 is not necessary for (23): an active block that is orthogonal and commutes with R_act will do",
               "extension of E §F.4, Theorem 1, eq. (23)");
  Largest broken;
  for (const auto& [r, s] : x.pairs) broken.add(std::abs(logit(r, s, P) - displaced(r, s)));
  ledger.control("4.23m", broken.value(), 1e-2, "(23) for any P, ‖q‖ = ‖k‖ = 1",
                 "premise of E §F.4, Theorem 1, eq. (23)");
}

}  // namespace detail

/// Decides 4.14 to 4.19, 4.23 and 4.24 on random inputs of this seed.
template <class Scalar>
void post_rotation_propositions(Ledger& ledger, std::uint64_t seed) {
  Random random(seed);
  const detail::PostRotated<Scalar> y(random);
  detail::cayley_transforms(ledger, y);
  detail::block_identities(ledger, y, random);
  detail::post_rotations(ledger, y);
  detail::projected_logits(ledger, y, random);
}

}  // namespace SYMPOW_NAMESPACE::verify
