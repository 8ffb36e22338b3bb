// Over the rational numbers: tensors, symmetric powers and the induced map (papers A to C).
#pragma once

#include <complex>
#include <set>

#include <sympow/tensor/symmetric_basis.hpp>
#include <sympow/tensor/tensor_power.hpp>
#include "identities/identity.hpp"

#ifdef SYMPOW_HAS_RATIONAL
namespace SYMPOW_NAMESPACE::verify {
namespace detail::identities {

/// x ⊗ … ⊗ x.
[[nodiscard]] inline Numbers tensor(const Numbers& x, int p) { return tensor_power(x, p); }

/// E with x^{⊗p} = E m(x): 1 where β rearranges α. J of the papers' bridge is E W^{-½}.
[[nodiscard]] inline Square rearrangements(Index d, int p) {
  const MultiIndices indices(d, p);
  Square E = Square::Zero(tensor_dimension(d, p), indices.size());
  Index n = 0;
  for (const auto& alpha : indices) {
    for (const auto& beta : orbit(alpha)) E(flat_position(beta, d), n) = 1;
    ++n;
  }
  return E;
}

/// (d, p) by the round, and p.
struct Shape {
  Index d;
  int p;
};
[[nodiscard]] inline Shape shape(Exact& x, std::initializer_list<Index> d, std::initializer_list<Index> p) {
  const Index dimension = x.size("d", d);
  return {dimension, static_cast<int>(x.size("p", p))};
}

/// K1 to K4.
inline void kernels(Identities& all) {
  for (const int p : {1, 2, 3, 4, 6})
    all.add("K1.p" + std::to_string(p), [p](Exact& x) {
      const Index d = x.size("d", {2, p < 5 ? 4 : 3});
      const Numbers v = x.vector("v", d), w = x.vector("w", d);
      x.equal(exact::monomials(v, p).dot(exact::weights<Rational>(d, p).cwiseProduct(exact::monomials(w, p))),
              power(v.dot(w), p));
    });
  all.add("K2", [](Exact& x) {
    const auto [d, p] = shape(x, {3, 2, 3}, {2, 3, 4});
    const Numbers v = x.vector("v", d), m = exact::monomials(v, p);
    x.equal(m.dot(exact::weights<Rational>(d, p).cwiseProduct(m)), power(square(v), p));
  });
  const auto of_tensors = [](std::initializer_list<Index> dimensions, std::initializer_list<Index> powers) {
    return [d = std::vector<Index>(dimensions), p = std::vector<Index>(powers)](Exact& x) {
      const auto [n, degree] = shape(x, {d[0], d[1], d[2]}, {p[0], p[1], p[2]});
      const Numbers q = x.vector("q", n), k = x.vector("k", n);
      x.equal(tensor(q, degree).dot(tensor(k, degree)), power(q.dot(k), degree));
    };
  };
  all.add("K3", of_tensors({4, 3, 2}, {2, 3, 4}));
  all.add("X3.fix", of_tensors({6, 6, 3}, {2, 4, 6}));
  all.add("X6", [](Exact& x) {
    const auto [d, p] = shape(x, {8, 8, 4, 3}, {2, 4, 6, 8});
    const Numbers q = x.vector("q", d), k = x.vector("k", d), w = exact::weights<Rational>(d, p);
    x.equal(exact::monomials(q, p).dot(w.cwiseProduct(exact::monomials(k, p))), power(q.dot(k), p));
  });
  all.add("K4", [](Exact& x) {
    const auto [d, p] = shape(x, {4, 3, 2}, {2, 3, 4});
    const Numbers q = x.vector("q", d), k = x.vector("k", d), w = exact::weights<Rational>(d, p);
    x.equal(exact::monomials(q, p).dot(w.cwiseProduct(exact::monomials(k, p))), tensor(q, p).dot(tensor(k, p)));
  });
  all.add("K5", [](Exact& x) {
    const Index d = x.size("d", {1, 2, 3, 5, 8, 11});
    x.equal(number(exact::weights<Rational>(d, 2).size()), Rational(d * d + d, 2));
    x.equal(Rational(symmetric_dimension(d, 2), tensor_dimension(d, 2)), Rational(d + 1, 2 * d));
  });
}

/// R1 to R5: vectors of lengths 2, 3, n and n + 1.
inline void tensor_products(Identities& all) {
  struct Factors {
    Numbers a, b, c, e;
    [[nodiscard]] Numbers flat() const { return tensor_product(a, b, c, e); }
    [[nodiscard]] static Factors drawn(Exact& x, const std::string& name) {
      const Index n = x.size("n", {2, 4});
      Factors f;
      f.a = x.vector(name + "_1", 2), f.b = x.vector(name + "_2", 3);
      f.c = x.vector(name + "_3", n), f.e = x.vector(name + "_4", n + 1);
      return f;
    }
  };
  all.add("R1", [](Exact& x) {
    const Factors v = Factors::drawn(x, "v"), w = Factors::drawn(x, "w");
    x.equal(v.flat().dot(w.flat()), v.a.dot(w.a) * v.b.dot(w.b) * v.c.dot(w.c) * v.e.dot(w.e));
  });
  all.add("R2", [](Exact& x) {  // flattened with the first index fastest
    const Factors v = Factors::drawn(x, "v"), w = Factors::drawn(x, "w");
    const Numbers left = tensor_product(v.e, v.c, v.b, v.a), right = tensor_product(w.e, w.c, w.b, w.a);
    x.equal(left.dot(right), v.flat().dot(w.flat()));
  });
  all.add("R3", [](Exact& x) {
    const Factors v = Factors::drawn(x, "v");
    x.equal(v.flat().sum(), v.a.sum() * v.b.sum() * v.c.sum() * v.e.sum());
  });
  all.add("R4", [](Exact& x) {
    const Factors v = Factors::drawn(x, "v");
    const Numbers flat = v.flat();
    Index n = 0;
    for (const Rational& a : v.a)
      for (const Rational& b : v.b)
        for (const Rational& c : v.c)
          for (const Rational& e : v.e) x.equal(flat[n++], a * b * c * e);
  });
  all.add("R5", [](Exact& x) {
    const Index m = x.size("m", {2, 4}), n = x.size("n", {3, 5});
    const Numbers v = x.vector("v", m), w = x.vector("w", n), flat = tensor_product(v, w);
    for (Index i = 0; i < m; ++i) x.equal(flat.segment(i * n, n), v[i] * w);
  });
}

/// P2a to P2f, P2l and P2m: the map on monomials.
inline void induced_maps(Identities& all) {
  const auto dimensions = [](Exact& x) { return shape(x, {2, 3, 2, 2}, {2, 2, 3, 4}); };
  all.add("P2a", [dimensions](Exact& x) {
    const auto [d, p] = dimensions(x);
    const Square P = x.matrix("P", d, d);
    const Numbers k = x.vector("k", d);
    x.equal(exact::lift(P, p) * exact::monomials(k, p), exact::monomials(Numbers(P * k), p));
  });
  all.add("P2b", [dimensions](Exact& x) {  // P̄ᵀP̄ = I is LᵀWL = W
    const auto [d, p] = dimensions(x);
    const Square L = exact::lift(orthogonal(x, "S", d), p), W = exact::weights<Rational>(d, p).asDiagonal();
    x.equal(L.transpose() * W * L, W);
  });
  all.add("P2c", [dimensions](Exact& x) {
    const auto [d, p] = dimensions(x);
    x.equal(exact::determinant(exact::lift(orthogonal(x, "S", d), p)), number(1));
  });
  all.add("P2d", [dimensions](Exact& x) {
    const auto [d, p] = dimensions(x);
    const Square P = x.matrix("P", d, d), G = x.matrix("G", d, d);
    x.equal(exact::lift(Square(P * G), p), exact::lift(P, p) * exact::lift(G, p));
  });
  all.add("P2e", [dimensions](Exact& x) {  // J = E W^{-½}: JᵀJ = I, and P^{⊗p} J = J P̄ is P^{⊗p} E = E L
    const auto [d, p] = dimensions(x);
    const Square P = x.matrix("P", d, d), E = rearrangements(d, p), W = exact::weights<Rational>(d, p).asDiagonal();
    const Numbers k = x.vector("k", d);
    x.equal(E * exact::monomials(k, p), tensor(k, p), "φ_TP = J φ_SYM");
    x.equal(E.transpose() * E, W, "JᵀJ = I");
    x.equal(kronecker_power(P, p) * E, E * exact::lift(P, p), "P^{⊗p} J = J P̄");
    x.equal(E.transpose() * kronecker_power(P, p) * E, W * exact::lift(P, p), "Jᵀ P^{⊗p} J = P̄");
  });
  const auto exponent = [](Index d, int p) { return binomial(d + p - 1, d); };
  all.add("P2f", [=](Exact& x) {
    const auto [d, p] = dimensions(x);
    const Square G = x.matrix("G", d, d);
    x.equal(exact::determinant(exact::lift(G, p)), power(exact::determinant(G), static_cast<int>(exponent(d, p))));
  });
  all.add("P2l", [=](Exact& x) {
    const auto [d, p] = dimensions(x);
    const Numbers v = x.vector("v", d);
    const Square H = exact::householder(v, number(2) / square(v));
    x.equal(exact::determinant(exact::lift(H, p)), number(exponent(d, p) % 2 == 0 ? 1 : -1));
  });
  all.add("P2m", [](Exact& x) {
    const Index d = x.size("d", {2, 3});
    const Square L = exact::lift(orthogonal(x, "S", d), 3);
    x.equal(L.transpose() * L, one(L.rows()));
  });
}

/// P2n: Sym(R(θ)) in the basis lifted from the eigenvectors e_{2j} ∓ i e_{2j+1}, over the Gaussian numbers.
inline void eigenvalues_of_lifts(Identities& all) {
  using Gaussian = std::complex<Rational>;
  using GaussianMatrix = Matrix<Gaussian>;
  all.add("P2n", [](Exact& x) {
    const Index n = x.size("d/2", {1, 2}), p = x.size("p", {4, 2}), d = 2 * n;
    const Numbers t = x.vector("tan θ/2", n);
    const Square R = exact::rotation(t);
    GaussianMatrix rotation(d, d), V = GaussianMatrix::Zero(d, d), values = V;
    for (Index m = 0; m < R.size(); ++m) rotation.data()[m] = Gaussian(R.data()[m]);
    for (Index j = 0; j < d; ++j) {
      const Rational sign(j % 2 == 0 ? 1 : -1);  // e^{iθ} and e^{-iθ}
      const exact::Turn<Rational> turn(t[j / 2]);
      V(2 * (j / 2), j) = Gaussian(Rational(1));
      V(2 * (j / 2) + 1, j) = Gaussian(Rational(0), -sign);
      values(j, j) = Gaussian(turn.cosine, sign * turn.sine);
    }
    const int power = static_cast<int>(p);
    const GaussianMatrix lifted = exact::lift(V, power), left = exact::lift(rotation, power) * lifted;
    const MultiIndices indices(d, power);
    for (const auto& alpha : indices) {
      Gaussian value(Rational(1));
      for (const Index j : alpha) value *= values(j, j);
      const Index column = indices.rank(alpha);
      for (Index row = 0; row < left.rows(); ++row) {
        const Gaussian right = value * lifted(row, column);
        x.equal(left(row, column).real(), right.real()), x.equal(left(row, column).imag(), right.imag());
      }
    }
  });
}

/// P2g to P2k: the proof, on tensors.
inline void lifts_to_tensors(Identities& all) {
  const auto dimensions = [](Exact& x) { return shape(x, {2, 3, 2}, {2, 2, 3}); };
  all.add("P2g", [dimensions](Exact& x) {
    const auto [d, p] = dimensions(x);
    const Square full = kronecker_power(orthogonal(x, "S", d), p);
    x.equal(full.transpose() * full, one(full.rows()));
    x.equal(exact::determinant(full), number(1));
  });
  all.add("P2h", [](Exact& x) {
    const Index d = x.size("d", {2, 3});
    const Square P = orthogonal(x, "S", d), full = kronecker_power(P, 3), v = x.matrix("v", d, 3),
                 w = x.matrix("w", d, 3);
    const auto flat = [](const Square& of) { return Numbers(tensor_product(of.col(0), of.col(1), of.col(2))); };
    x.equal((full * flat(v)).dot(full * flat(w)),
            v.col(0).dot(w.col(0)) * v.col(1).dot(w.col(1)) * v.col(2).dot(w.col(2)));
  });
  all.add("P2i", [](Exact& x) {
    const Index m = x.size("m", {2, 3}), n = x.size("n", {3, 2});
    const Square A = x.matrix("A", m, m), B = x.matrix("B", n, n);
    x.equal(exact::determinant(kronecker(A, B)),
            power(exact::determinant(A), static_cast<int>(n)) * power(exact::determinant(B), static_cast<int>(m)));
  });
  const auto determinants = [dimensions](bool printed) {
    return [=](Exact& x) {
      const auto [d, p] = dimensions(x);
      const Square P = x.matrix("P", d, d);
      const Index exponent = printed ? p * d : p * tensor_dimension(d, p - 1);
      x.equal(exact::determinant(kronecker_power(P, p)), power(exact::determinant(P), static_cast<int>(exponent)));
    };
  };
  all.erratum("P2j", determinants(true), determinants(false));
  all.add("P2j.fix", determinants(false));
  const auto reflections = [](bool printed) {  // of the plane, p = 1
    return [printed](Exact& x) {
      const Numbers v = x.vector("v", 2);
      x.equal(exact::determinant(exact::householder(v, number(2) / square(v))), number(printed ? 1 : -1));
    };
  };
  all.erratum("P2j'", reflections(true), reflections(false));
  all.add("P2k", [](Exact& x) {
    const Numbers v = x.vector("v", 2);
    const Square H = exact::householder(v, number(2) / square(v));
    x.equal(exact::determinant(exact::lift(H, 2)), exact::determinant(kronecker_power(H, 2)));
  });
}

/// S1 to S4, S9: counting, by trying every permutation.
inline void counts_of_orbits(Identities& all) {
  const auto shapes = [](Exact& x) { return shape(x, {2, 3, 3, 4, 3, 2}, {3, 2, 3, 3, 4, 5}); };
  const auto permutations = [](int p) {
    MultiIndex<> positions(p);
    for (int l = 0; l < p; ++l) positions[l] = l;
    return orbit(positions);
  };
  struct Counted {
    Index images = 0, fixing = 0, factorials = 1;
  };
  const auto counted = [permutations](const MultiIndex<>& alpha, Index d) {
    Counted c;
    std::set<MultiIndex<>> images;
    for (const auto& rho : permutations(alpha.size())) {
      MultiIndex<> image(alpha.size());
      for (int l = 0; l < alpha.size(); ++l) image[l] = alpha[static_cast<int>(rho[l])];
      images.insert(image);
      c.fixing += image == alpha;
    }
    c.images = std::ssize(images);
    for (const Index count : counts(alpha, d)) c.factorials *= factorial(count);
    return c;
  };
  const auto each = [=](auto check) {
    return [=](Exact& x) {
      const auto [d, p] = shapes(x);
      for (const auto& alpha : MultiIndices(d, p)) check(x, alpha, counted(alpha, d), d);
    };
  };
  const auto duplicates = [=](bool printed) {
    return each([printed](Exact& x, const MultiIndex<>& alpha, const Counted& c, Index d) {
      x.equal(number(c.images), Rational(factorial(printed ? d : alpha.size()), c.factorials));
    });
  };
  all.erratum("S1", duplicates(true), duplicates(false));
  all.add("S1.fix", duplicates(false));
  all.add("S2", each([](Exact& x, const MultiIndex<>& alpha, const Counted& c, Index) {
            x.equal(number(c.fixing), number(c.factorials));
            x.equal(number(c.fixing), number(stabilizer_order(alpha)));
          }));
  all.add("S3", each([](Exact& x, const MultiIndex<>& alpha, const Counted& c, Index) {
            x.equal(number(c.images * c.fixing), number(factorial(alpha.size())));
          }));
  all.add("S4", [counted](Exact& x) {
    x.equal(number(counted(MultiIndex<>{0, 3, 5}, 6).images), number(6));
    x.equal(number(counted(MultiIndex<>{0, 0, 0}, 6).images), number(1));
    x.equal(number(counted(MultiIndex<>{0, 0, 1}, 6).fixing), number(2));
  });
  all.add("S9", [](Exact& x) {
    const auto [d, p] = shape(x, {1, 2, 3, 4, 6, 2}, {3, 2, 3, 4, 3, 5});
    Index monotone = 0;
    for (Index n = 0; n < tensor_dimension(d, p); ++n) {
      Index rest = n, last = d;
      bool is_monotone = true;
      for (int l = 0; l < p; ++l, rest /= d) {
        is_monotone = is_monotone && rest % d <= last;
        last = rest % d;
      }
      monotone += is_monotone;
    }
    x.equal(number(monotone), number(binomial(d + p - 1, p)));
    x.equal(number(monotone), number(MultiIndices(d, p).size()));
  });
}

/// S5 to S8, S10 and S15: the basis of the symmetric tensors.
inline void symmetric_tensors(Identities& all) {
  const auto shapes = [](Exact& x) { return shape(x, {3, 3, 3, 2, 2}, {1, 2, 3, 4, 5}); };
  const auto symmetry = [](std::initializer_list<Index> dimensions, int p) {
    return [dimensions = std::vector<Index>(dimensions), p](Exact& x) {
      const Index d = x.size("d", {dimensions[0], dimensions[1]});
      const Numbers T = tensor(x.vector("v", d), p);
      for (const auto& alpha : MultiIndices(d, p))
        for (const auto& beta : orbit(alpha)) x.equal(T[flat_position(beta, d)], T[flat_position(alpha, d)]);
    };
  };
  all.add("S5", symmetry({2, 4}, 3));
  all.add("S15", symmetry({2, 3}, 5));
  all.add("S6", [shapes](Exact& x) {
    const auto [d, p] = shapes(x);
    const Square E = rearrangements(d, p);
    Index n = 0;
    for (const auto& alpha : MultiIndices(d, p)) {
      const Numbers element = symmetric_basis<Rational>(alpha, d);
      x.equal(element, number(stabilizer_order(alpha)) * E.col(n++));
    }
  });
  all.add("S7", [shapes](Exact& x) {
    const auto [d, p] = shapes(x);
    Square elements(tensor_dimension(d, p), symmetric_dimension(d, p));
    Index n = 0;
    for (const auto& alpha : MultiIndices(d, p)) elements.col(n++) = symmetric_basis<Rational>(alpha, d);
    x.equal(number(exact::rank(elements)), number(binomial(d + p - 1, p)));
  });
  all.add("S8", [shapes](Exact& x) {
    const auto [d, p] = shapes(x);
    const Numbers entries = x.vector("T", symmetric_dimension(d, p)), T = rearrangements(d, p) * entries;
    Numbers sum = Numbers::Zero(T.size());
    Index n = 0;
    for (const auto& alpha : MultiIndices(d, p))
      sum += entries[n++] / number(stabilizer_order(alpha)) * symmetric_basis<Rational>(alpha, d);
    x.equal(sum, T);
    x.equal(symmetric_tensor(Numbers(symmetric_coordinates(T, d, p)), d, p), T);
  });
  for (int p = 1; p <= 6; ++p)
    all.add("S10.p" + std::to_string(p), [p](Exact& x) {
      const Index d = x.size("d", {p < 5 ? 3 : 1, 2});
      for (const auto& alpha : MultiIndices(d, p))
        x.equal(polarization<Rational>(alpha, d), symmetric_basis<Rational>(alpha, d));
    });
}

/// S11 to S14: steps of the proofs about them.
inline void steps_of_proofs(Identities& all) {
  const auto proof_step = [](bool printed) {  // α = β = [1, 2, 2], d = 2, p = 3
    return [printed](Exact& x) {
      const MultiIndex<> alpha{0, 1, 1};
      Rational sum(0);
      for (unsigned b = 0; b < 8; ++b) {
        Rational term(1);
        for (int i = 0; i < 3; ++i) {
          Rational chosen(0);
          for (int j = 0; j < (printed ? 2 : 3); ++j) chosen += number((b >> j & 1u) != 0 && alpha[j] == alpha[i]);
          term *= (b >> i & 1u) != 0 ? chosen : -chosen;
        }
        sum += term;
      }
      x.equal(sum, polarization<Rational>(alpha, 2)[flat_position(alpha, 2)]);
    };
  };
  all.erratum("S11", proof_step(true), proof_step(false));
  all.add("S12", [](Exact& x) {
    const auto [d, p] = shape(x, {2, 3, 4}, {3, 3, 2});
    const Square v = x.matrix("v", d, 2 * symmetric_dimension(d, p));
    Square powers(symmetric_dimension(d, p), v.cols());
    for (Index n = 0; n < v.cols(); ++n) {
      Exact::require(square(v.col(n)).sign() > 0);
      powers.col(n) = exact::monomials(v.col(n), p);
    }
    Exact::require(exact::rank(v) == d && v.cwiseAbs().maxCoeff() > number(1));  // general vectors
    x.equal(number(exact::rank(powers)), number(powers.rows()));
  });
  const auto evaluated = [](bool printed) {  // at β = [1, 1], printed with a free α, here [1, 2]
    return [printed](Exact& x) {
      const Index d = x.size("d", {2, 3}, 2);
      const Numbers coordinates = x.vector("x", symmetric_dimension(d, 2));
      const MultiIndex<> alpha{0, 1}, beta{0, 0};
      x.equal(symmetric_tensor(coordinates, d, 2)[flat_position(beta, d)],
              coordinates[0] * number(stabilizer_order(printed ? alpha : beta)));
    };
  };
  all.erratum("S13", evaluated(true), evaluated(false));
  all.add("S13.fix", evaluated(false));
  const auto norms = [](bool printed) {
    return [printed](Exact& x) {
      const Numbers v = x.vector("v", x.size("d", {2, 4})), T = tensor(v, 3);
      x.equal(power(square(v), printed ? 2 : 3), square(T));
    };
  };
  all.erratum("S14", norms(true), norms(false));
}

}  // namespace detail::identities

/// The statements of A to C on tensors, φ and its lift.
inline void tensor_identities(Identities& all) {
  detail::identities::kernels(all);
  detail::identities::tensor_products(all);
  detail::identities::induced_maps(all);
  detail::identities::eigenvalues_of_lifts(all);
  detail::identities::lifts_to_tensors(all);
  detail::identities::counts_of_orbits(all);
  detail::identities::symmetric_tensors(all);
  detail::identities::steps_of_proofs(all);
}

}  // namespace SYMPOW_NAMESPACE::verify
#endif
