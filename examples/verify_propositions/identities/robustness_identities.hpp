// Over the rational numbers: what is near the family 𝒜, and perturbed Cayley transforms (paper E).
#pragma once

#include "identities/rotation_identities.hpp"

#ifdef SYMPOW_HAS_RATIONAL
namespace SYMPOW_NAMESPACE::verify {
namespace detail::identities {

/// A ⊕ B.
[[nodiscard]] inline Square direct_sum(const Square& a, const Square& b) {
  Square both = Square::Zero(a.rows() + b.rows(), a.cols() + b.cols());
  both.topLeftCorner(a.rows(), a.cols()) = a, both.bottomRightCorner(b.rows(), b.cols()) = b;
  return both;
}

/// J.noncomm and J.schur: planes that are none of all generators.
inline void other_planes(Identities& all) {
  all.add("J.noncomm", [](Exact& x) {  // joint planes make generators commute
    const Index d = x.size("d", {3, 4}, 3);
    const Square a = skew(x, "L_1", d), b = skew(x, "L_2", d);
    x.equal(a * b, b * a);
  });
  all.add("J.schur", [](Exact& x) {  // L_1 = J ⊕ J keeps the planes that are turned into each other
    const Square mixed = kronecker(exact::rotation(x.vector("t", 1)), one(2)), L = direct_sum(Family::J(), Family::J());
    x.equal(mixed.transpose() * L * mixed, L);
    const Rational lambda[] = {x.number("λ_21"), x.number("λ_22")};
    const Square second = direct_sum(lambda[0] * Family::J(), lambda[1] * Family::J());
    const Square found = mixed.transpose() * second * mixed;
    x.equal(found.topRightCorner(2, 2), Square::Zero(2, 2), "planes of L_2:");
  });
}

/// 4.14n, 4.14q and 4.18e.
inline void cayley_members(Identities& all) {
  all.add("4.14n", [](Exact& x) {  // P = I ⊕ Jⁿ; I + P(S) = 2 (I + S)⁻¹
    const Square P = direct_sum(one(2), exact::power(Family::J(), x.integer("quarter turns", 0, 3)));
    x.is(exact::determinant(one(4) + P).sign() != 0, "I + P has an inverse:");
  });
  all.add("4.14q", [](Exact& x) {
    const Family f = Family::drawn(x);
    const Index d = f.dimension();
    const Square S = skew(x, "S", d), off = (exact::cayley(S) - one(d)) * f.projector(), SP = S * f.projector();
    const Numbers y = x.vector("x", d);
    x.at_most(square(off * y), number(4) * square(SP * y));
    x.equal(number(-2) * SP, (one(d) + S) * off, "2 S Π_act = (I + S) (I - P) Π_act");
  });
  all.add("4.18e", [](Exact& x) {
    const Family f = Family::drawn(x, 1);
    const Index d = f.dimension();
    const Square S = f.generator(0), P = exact::cayley(S);
    const auto turn = [&](Index u) { return exact::rotation(Numbers(Numbers::Constant(1, -f.lambda(0, u)))); };
    x.equal(P, f.U * f.blocks(turn) * f.U.transpose() + one(d) - f.projector(), "angles -2 arctan μ");
    x.equal(P, number(2) * exact::inverse(one(d) + S) - one(d), "2 (I + S)⁻¹ - I");
    x.equal(exact::cayley(-S), P.transpose(), "P(-S)");
  });
}

/// 4.26a and 4.26b: rotations without and with mixing of the active and the null space.
inline void orthogonal_blocks(Identities& all) {
  const auto unmixed = [](Exact& x) {  // η_mix = 0 is no distance from a member, and leaves the active block I
    x.about("η_mix = 0");
    const Index n = x.size("2m", {2, 4}), null = x.size("d - 2m", {1, 2});
    const Square P = direct_sum(orthogonal(x, "S of P", n), orthogonal(x, "S of null", null));
    x.equal(P.leftCols(n), one(n + null).leftCols(n), "P Π_act for Π_act:");
  };
  all.erratum("4.26a", unmixed, [](Exact& x) {  // every rotation is (O_1 ⊕ O_2) [C, -S; S, C] (O_3 ⊕ O_4), ‖B‖ = ‖S‖
    const Index n = x.size("2m", {2, 4}), null = x.size("d - 2m", {1, 2});
    Square middle = one(n + null);
    Rational largest(0);
    for (Index a = 0; a < null; ++a) {
      const exact::Turn<Rational> turn(Rational(x.integer("10 tan " + std::to_string(a + 1), -10, 10), 10));
      middle(a, a) = middle(n + a, n + a) = turn.cosine;
      middle(n + a, a) = turn.sine, middle(a, n + a) = -turn.sine;
      largest = std::max(largest, turn.sine * turn.sine);
    }
    const Square left = direct_sum(orthogonal(x, "O_1", n), orthogonal(x, "O_2", null)),
                 right = direct_sum(orthogonal(x, "O_3", n), orthogonal(x, "O_4", null));
    const Numbers y = x.vector("x", n + null);
    x.at_most(square((left * middle * right - left * right) * y), number(2) * largest * square(y));
  });
  all.erratum("4.26b", unmixed, [](Exact& x) {
    const Index n = x.size("2m", {1, 2}), null = x.size("d - 2m", {1, 2});
    const Square P = orthogonal(x, "S", n + null), A = P.topLeftCorner(n, n), C = P.bottomLeftCorner(null, n);
    x.equal(A.transpose() * A - one(n), -(C.transpose() * C));
  });
}

/// 4.32 and 4.33: S = S₋ + η E with ‖E‖ ≤ 1, η = s²/(1 + s²).
inline void perturbed_transforms(Identities& all) {
  struct Perturbed {
    Index d;
    Rational eta;
    Square S, E;
    Numbers y;
    explicit Perturbed(Exact& x) : d(x.size("d", {2, 3})) {
      const Rational s = x.number("s");
      eta = s * s / (number(1) + s * s);
      S = skew(x, "S₋", d), E = eta * contraction(x, "E", d), y = x.vector("x", d);
    }
    [[nodiscard]] Rational moved(const Square& before, const Square& after) const {
      return square((after - before) * y);
    }
    [[nodiscard]] Rational allowed(const Rational& factor) const { return factor * factor * eta * eta * square(y); }
  };
  all.add("4.32", [](Exact& x) {
    const Perturbed p(x);
    const Square plus = one(p.d) + p.S;
    x.at_most(p.moved(exact::inverse(plus), exact::inverse(plus + p.E)), p.allowed(number(1) / (number(1) - p.eta)));
  });
  all.add("4.32s", [](Exact& x) {
    const Index d = x.size("d", {1, 3});
    const Rational s = x.number("s"), eta = s * s / (number(1) + s * s);
    x.equal(exact::inverse(Square(one(d) - eta * one(d))) - one(d), eta / (number(1) - eta) * one(d));
  });
  all.erratum(
      "4.33",
      [](Exact& x) {  // S₋ = 0, S = -η I: P(S) - I is a multiple of I
        const Rational s = x.number("s"), eta = s * s / (number(1) + s * s);
        const Rational norm = exact::cayley(Square(-eta * one(1)))(0, 0) - number(1);
        x.at_most(norm, number(x.integer("C_3", 1, 99)) * eta, "‖P(S) - P(S₋)‖ ≤ C_3 η:");
      },
      [](Exact& x) {
        const Perturbed p(x);
        const Square P = exact::cayley(p.S), half = (p.E - p.E.transpose()) / number(2);  // skew, ‖half‖ ≤ η
        x.at_most(p.moved(P, exact::cayley(Square(p.S + p.E))), p.allowed(number(2) / (number(1) - p.eta)));
        x.at_most(p.moved(P, exact::cayley(Square(p.S + half))), p.allowed(number(2)), "skew:");
      });
  all.add("4.33o", [](Exact& x) {
    const Index d = x.size("d", {1, 2});
    const Square E = x.matrix("E", d, d), P = exact::cayley(Square(skew(x, "S₋", d) + E));
    x.equal(P.transpose() * P, one(P.rows()));
  });
}

}  // namespace detail::identities

/// The statements of E on what is nearly equivariant.
inline void robustness_identities(Identities& all) {
  detail::identities::other_planes(all);
  detail::identities::cayley_members(all);
  detail::identities::orthogonal_blocks(all);
  detail::identities::perturbed_transforms(all);
}

}  // namespace SYMPOW_NAMESPACE::verify
#endif
